// node speed.mjs FILE…: milliseconds to load release files, to report and to decode.
import { readFile } from "node:fs/promises";
import { loadRelease } from "../../../src/offaxis/collector/pages/client/index.js";

async function milliseconds(times, action) {
  const start = performance.now();
  for (let i = 0; i < times; i++) await action();
  return ((performance.now() - start) / times).toFixed(2);
}

for (const path of process.argv.slice(2)) {
  const bytes = await readFile(path);
  const release = await loadRelease(bytes);
  const vector = Float64Array.from({ length: release.inputDim }, (_, i) => Math.sin(i));
  const report = await release.privatize(vector);
  const loading = await milliseconds(20, () => loadRelease(bytes));
  const reporting = await milliseconds(50, () => release.privatize(vector));
  const decoding = await milliseconds(20, () => release.decode(report));
  console.log(`${path}: load ${loading}, report ${reporting}, decode ${decoding} ms`);
}
