// node maker.mjs CLIENT RELEASE: make reports of vectors in bulk.
// A request is two 32-bit numbers, rows and columns, and the rows as float64; a response is its
// length in 32 bits and the reports one after the other, or length 0 if a vector was rejected.
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { InvalidInput, loadRelease } = await import(pathToFileURL(resolve(process.argv[2])));
const release = await loadRelease(new Uint8Array(await readFile(process.argv[3])));

async function reports(rows) {
  const made = [];
  try {
    for (const row of rows) made.push(await release.privatize(row));
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    return Buffer.alloc(0);
  }
  return Buffer.concat(made);
}

let waiting = Buffer.alloc(0);
for await (const chunk of process.stdin) {
  waiting = Buffer.concat([waiting, chunk]);
  while (waiting.length >= 8) {
    const [rows, columns] = [waiting.readUInt32LE(0), waiting.readUInt32LE(4)];
    const end = 8 + 8 * rows * columns;
    if (waiting.length < end) break;
    const numbers = new Float64Array(new Uint8Array(waiting.subarray(8, end)).buffer);
    waiting = waiting.subarray(end);
    const vectors = Array.from({ length: rows }, (_, i) =>
      numbers.subarray(i * columns, (i + 1) * columns),
    );
    const made = await reports(vectors);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(made.length);
    process.stdout.write(Buffer.concat([length, made]));
  }
}
