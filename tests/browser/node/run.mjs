// node run.mjs FILE: run every check of a file in this folder, and print one line each.
import { readFile } from "node:fs/promises";

const folder = new URL("../../vectors/", import.meta.url);
const { checks } = await import(`./${process.argv[2]}`);

async function read(name) {
  const content = await readFile(new URL(name, folder));
  return name.endsWith(".json") ? JSON.parse(content) : Uint8Array.from(content);
}

for (const [name, check] of checks(read)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${error.stack}`);
    process.exitCode = 1;
  }
}
