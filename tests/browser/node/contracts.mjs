// What the client promises whoever uses it: in Node and in a page alike.
import * as offaxis from "../../../src/offaxis/collector/pages/client/index.js";
import { Entropy } from "../../../src/offaxis/collector/pages/client/entropy.js";
import { Laplace } from "../../../src/offaxis/collector/pages/client/laplace.js";
import { PrivUnit2 } from "../../../src/offaxis/collector/pages/client/privunit.js";
import { asParameters } from "./recorded.mjs";
import { Tape } from "./tape.mjs";

function expect(condition, what) {
  if (!condition) throw new Error(what);
}

async function refused(kind, action, what) {
  try {
    await action();
  } catch (error) {
    expect(error instanceof offaxis[kind] && error.name === kind, `${what}: ${error.stack}`);
    return;
  }
  throw new Error(`${what} was not refused`);
}

const load = async (read, name) => offaxis.loadRelease(await read(`${name}.release`));

async function vectors(read) {
  for (const name of ["laplace", "privunit2-mean", "response"]) {
    const release = await load(read, name);
    const wrong = [
      ...[[1, 2], [1, 2, 3, 4], [1, NaN, 3], [1, 2, Infinity], [1, "2", 3], [1, 2, null], [1, , 3]],
      ...["123", null, undefined, 5, { length: 3 }, [1n, 2n, 3n], BigInt64Array.of(1n, 2n, 3n)],
      ...[new DataView(new ArrayBuffer(24)), new Float32Array([1, NaN, 2])],
    ];
    for (const vector of wrong) {
      await refused("InvalidInput", () => release.privatize(vector), `${name} ${String(vector)}`);
    }
    const odd = [
      ...[[0, 0, 0], [1e308, -1e308, 1e308], [5e-324, 0, -0], new Float32Array([1, 2, 3])],
      Int8Array.of(1, 2, 3),
    ];
    for (const vector of odd) {
      const report = await release.privatize(vector);
      expect(report.length === release.reportSize, "every report has the same size");
      expect((await release.decode(report)).every(Number.isFinite), "and decodes to numbers");
    }
  }
}

async function limits(read) {
  const release = await load(read, "laplace"); // ε = 4
  release.checkLimit({ epsilon: 4 });
  release.checkLimit({ epsilon: "4.5", delta: "1e-9" });
  const cases = [{ epsilon: 3.9999999999 }, { epsilon: "39/10" }, { epsilon: 4, unit: "user" }];
  for (const limit of cases) await refused("LimitExceeded", () => release.checkLimit(limit), "a limit");
  for (const limit of [undefined, {}, { epsilon: "four" }, { epsilon: 0 }, { epsilon: NaN }]) {
    await refused("InvalidInput", () => release.checkLimit(limit), "no limit");
  }
}

async function hashes(read) {
  const bytes = await read("laplace.release");
  const { hash } = await offaxis.loadRelease(bytes.buffer);
  for (const expected of [hash, hash.toUpperCase(), `sha256:${hash}`]) {
    await offaxis.loadRelease(bytes, { expect: expected });
  }
  for (const expected of ["0".repeat(64), "", hash.slice(1)]) {
    await refused("InvalidRelease", () => offaxis.loadRelease(bytes, { expect: expected }), "a hash");
  }
  for (const given of [null, "text", [1, 2], {}, new DataView(bytes.buffer)]) {
    await refused("InvalidRelease", () => offaxis.loadRelease(given), "what is no bytes");
  }
}

async function noSeed(read) {
  const release = await load(read, "privunit2");
  expect(Object.isFrozen(release) && Object.isFrozen(release.guarantee), "a release is frozen");
  const values = Object.getOwnPropertyNames(release).map((name) => release[name]);
  expect(values.every((value) => typeof value !== "function" && !value?.report), "a hidden part");
  expect(!("Entropy" in offaxis) && Entropy.length === 0, "an entropy takes no seed");
  expect(release.privatize.length === 1, "a report is made of a vector alone");
  await refused("InvalidInput", () => new offaxis.Release(Symbol("made by loadRelease")), "a forgery");
}

async function withoutRandomness(read) {
  const releases = await Promise.all(["laplace", "privunit2", "response"].map((n) => load(read, n)));
  globalThis.crypto.getRandomValues = () => {
    throw new Error("none today");
  };
  try {
    for (const release of releases) {
      await refused("EntropyFailure", () => release.privatize([1, 2, 3]), "no randomness");
    }
  } finally {
    delete globalThis.crypto.getRandomValues; // the real one lies behind it
  }
  await releases[0].privatize([1, 2, 3]);
}

async function largeDraws() {
  const words = new Entropy().words(100_000); // more than one call of the browser gives
  const high = words.filter((word) => word >= 1 << 15).length;
  // Ten standard deviations: a false alarm once in 10^23.
  expect(Math.abs(high - 50_000) < 10 * Math.sqrt(25_000), `${high} of 100000 words are high`);
  expect(new Set(words.slice(-1000)).size > 900, "the last words are random, too");
}

// A vector that cannot be laid on the lattice fails after all noise was drawn: as late as a good one.
async function noiseFirst() {
  const common = { dim: 3, radius: 2, epsilon: "3" };
  const ranks = { ...common, directions: 228, near: 28 };
  const forms = [
    new Laplace(asParameters({ ...common, log2_scale: 17 })),
    new PrivUnit2(asParameters({ ...ranks, target: "direction" })),
    new PrivUnit2(asParameters({ ...ranks, target: "vector" })),
  ];
  for (const form of forms) {
    const [good, bad] = [new Tape("noise first"), new Tape("noise first")];
    await form.report([Float64Array.of(1, 2, 3)], good);
    await refused("InvalidInput", () => form.report([Float64Array.of(1, NaN, 3)], bad), "a NaN");
    expect(good.used > 0 && good.used === bad.used, "the noise is drawn before the vector is seen");
  }
}

async function changedMeanwhile(read) {
  const release = await load(read, "response");
  const bytes = await read("response.release");
  const loading = offaxis.loadRelease(bytes);
  bytes.fill(0);
  expect((await loading).hash === release.hash, "the bytes were copied before they were checked");
}

// All checks; read(name) gives a file of tests/vectors.
export function checks(read) {
  return [
    ["vectors are refused or reported", () => vectors(read)],
    ["the page's own limit", () => limits(read)],
    ["pinned hashes", () => hashes(read)],
    ["no seed", () => noSeed(read)],
    ["no randomness, no report", () => withoutRandomness(read)],
    ["large draws", largeDraws],
    ["noise before the vector", noiseFirst],
    ["bytes changed meanwhile", () => changedMeanwhile(read)],
  ];
}
