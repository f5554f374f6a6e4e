// The contract of the client, checked in Node and in a page.
import * as offaxis from "../../../src/offaxis/collector/pages/client/index.js";
import { nextReport } from "../../../src/offaxis/collector/pages/client/device/sequences.js";
import { Entropy } from "../../../src/offaxis/collector/pages/client/entropy.js";
import { Laplace } from "../../../src/offaxis/collector/pages/client/laplace.js";
import {
  MemoisedPrivUnit2,
  MemoisedResponse,
} from "../../../src/offaxis/collector/pages/client/memoised.js";
import { PrivUnit2 } from "../../../src/offaxis/collector/pages/client/privunit.js";
import { asParameters } from "./recorded.mjs";
import { Tape } from "./tape.mjs";

function expect(condition, what) {
  if (!condition) throw new Error(what);
}

async function rejects(kind, action, what) {
  try {
    await action();
  } catch (error) {
    expect(error instanceof offaxis[kind] && error.name === kind, `${what}: ${error.stack}`);
    return;
  }
  throw new Error(`${what} was not rejected`);
}

const load = async (read, name) => offaxis.loadRelease(await read(`${name}.release`));

async function vectors(read) {
  for (const name of ["laplace", "privunit2-mean", "response", "memoised-means"]) {
    const release = await load(read, name);
    const privatize = async (vector) =>
      release.sequence
        ? (await nextReport(release, null, 0, vector)).report
        : release.privatize(vector);
    const wrong = [
      ...[[1, 2], [1, 2, 3, 4], [1, NaN, 3], [1, 2, Infinity], [1, "2", 3], [1, 2, null], [1, , 3]],
      ...["123", null, undefined, 5, { length: 3 }, [1n, 2n, 3n], BigInt64Array.of(1n, 2n, 3n)],
      ...[new DataView(new ArrayBuffer(24)), new Float32Array([1, NaN, 2])],
    ];
    for (const vector of wrong) {
      await rejects("InvalidInput", () => privatize(vector), `${name} ${String(vector)}`);
    }
    const odd = [
      ...[[0, 0, 0], [1e308, -1e308, 1e308], [5e-324, 0, -0], new Float32Array([1, 2, 3])],
      Int8Array.of(1, 2, 3),
    ];
    for (const vector of odd) {
      const report = await privatize(vector);
      expect(report.length === release.reportSize, "a report has another size");
      expect((await release.decode(report)).every(Number.isFinite), "a decoded report is not finite");
    }
  }
}

// Answers besides those that JSON can hold (tests/browser/test_client_pairs.py).
async function answers(read) {
  const colour = await load(read, "pairs-moments");
  const mixed = await load(read, "pairs-mixed"); // an optional class, a number and a class
  const score = await load(read, "pairs-number"); // optional, from -1.5 to 2.5
  const nothing = await load(read, "pairs-nothing");
  const laplace = await load(read, "laplace");
  const vector = [0.5, -2, 1];
  const full = { smoker: null, age: 30, region: "7" };
  const wrong = [
    ...[undefined, null, NaN, -1, 3, 0.5, 1n, "RED", "", true, Symbol.iterator, () => "red"],
    ...[[], ["red"], {}, { colour: undefined }, { colour: "red", more: 1 }, new Map([["colour", 0]])],
    ...[Object.create({ colour: "red" }), new String("red"), new Number(0), new Date(0)],
  ].map((answer) => [colour, answer]);
  wrong.push(...[NaN, Infinity, -Infinity, "1", "", true, 1n, [1], {}].map((a) => [score, a]));
  wrong.push(...[0, "red", {}, [], NaN, false].flatMap((a) => [[nothing, a], [laplace, a]]));
  const incomplete = [
    ...[undefined, null, "yes", 0, {}, { ...full, age: undefined }, { ...full, smoker: undefined }],
    ...[{ ...full, age: NaN }, { ...full, age: null }, { ...full, region: null }],
    ...[{ ...full, region: 3 }, { ...full, region: "8" }, { ...full, "": 1 }, { age: 1, region: "7" }],
  ];
  wrong.push(...incomplete.map((answer) => [mixed, answer]));
  for (const [release, answer] of wrong) {
    if (release !== nothing && release !== laplace && answer === undefined) {
      await rejects("InvalidInput", () => release.privatize(vector), "no answers");
    }
    await rejects("InvalidInput", async () => release.pair(vector, answer), "pair()");
    await rejects("InvalidInput", () => release.privatize(vector, answer), "privatize()");
  }
  const same = (release, answer, ...codes) =>
    expect([...release.pair(vector, answer)].join() === [...vector, ...codes].join(), "a row");
  same(colour, "blue", 2);
  same(colour, { colour: 1 }, 1);
  same(mixed, full, 1e30, 30, 3);
  same(mixed, { region: "2", smoker: 1, age: 1e300 }, 1, 100, 0);
  same(score, null, 1e30);
  same(score, -7, -1.5);
  same(nothing, null);
  same(laplace, undefined);
  for (const unusable of [[1, 2, NaN], [1, 2], null, [1, "a secret", 3]]) {
    for (const release of [colour, laplace]) {
      const answer = release === colour ? "red" : undefined;
      await rejects("InvalidInput", () => release.privatize(unusable, answer), "a vector");
    }
  }
  // A row is a vector with numbers for its answers; a vector alone is not one.
  expect((await colour.privatize(colour.pair(vector, 2))).length === colour.reportSize, "a row");
  await rejects("InvalidInput", () => colour.privatize(colour.pair(vector, 2), 2), "answers twice");
  for (const { asked } of [colour, mixed, score, nothing, laplace]) {
    const parts = [asked, ...asked, ...asked.flatMap(({ names }) => (names ? [names] : []))];
    expect(parts.every(Object.isFrozen), "what is asked can be changed");
  }
  expect(laplace.asked.length === 0 && nothing.asked.length === 0, "something is asked");
}

// No message of an error contains what is private.
async function messages(read) {
  const secret = "a secret 123456";
  const releases = await Promise.all(
    ["pairs-moments", "pairs-mixed", "pairs-number", "pairs-cells", "pairs-nothing", "laplace"].map(
      (name) => load(read, name),
    ),
  );
  const vectors = [[1, 2, 3], [1, 2, secret], [123456, 2], secret, [123456.5, NaN, 1], [1, 2, 3, secret]];
  const given = [secret, 123456, { colour: secret }, { smoker: secret, age: 123456, region: secret }];
  given.push({ [secret]: 1 }, [secret], null, undefined, { colour: 123456 });
  let thrown = 0;
  for (const release of releases) {
    for (const vector of vectors) {
      for (const answer of given) {
        try {
          await release.privatize(vector, answer);
        } catch (error) {
          thrown += 1;
          expect(error instanceof offaxis.InvalidInput, error.stack);
          expect(!/secret|123456/.test(error.message), `a private value in: ${error.message}`);
        }
      }
    }
  }
  expect(thrown > 200, "too few errors");
}

async function single(read) {
  const means = await load(read, "memoised-means");
  await rejects("InvalidInput", () => means.privatize([1, 2, 3]), "a sequence without a device");
  const classes = await load(read, "memoised-classes");
  await rejects("InvalidInput", () => classes.privatizeAnswer(0), "a sequence without a device");
}

async function limits(read) {
  const release = await load(read, "laplace"); // ε = 4
  release.checkLimit({ epsilon: 4 });
  release.checkLimit({ epsilon: "4.5", delta: "1e-9" });
  const cases = [{ epsilon: 3.9999999999 }, { epsilon: "39/10" }, { epsilon: 4, unit: "user" }];
  for (const limit of cases) await rejects("LimitExceeded", () => release.checkLimit(limit), "a limit");
  for (const limit of [undefined, {}, { epsilon: "four" }, { epsilon: 0 }, { epsilon: NaN }]) {
    await rejects("InvalidInput", () => release.checkLimit(limit), "an invalid limit");
  }
}

async function hashes(read) {
  const bytes = await read("laplace.release");
  const { hash } = await offaxis.loadRelease(bytes.buffer);
  for (const expected of [hash, hash.toUpperCase(), `sha256:${hash}`]) {
    await offaxis.loadRelease(bytes, { expect: expected });
  }
  for (const expected of ["0".repeat(64), "", hash.slice(1)]) {
    await rejects("InvalidRelease", () => offaxis.loadRelease(bytes, { expect: expected }), "a hash");
  }
  for (const other of [null, "text", [1, 2], {}, new DataView(bytes.buffer)]) {
    await rejects("InvalidRelease", () => offaxis.loadRelease(other), "something other than bytes");
  }
}

async function noSeed(read) {
  const release = await load(read, "privunit2");
  expect(Object.isFrozen(release) && Object.isFrozen(release.guarantee), "a release is not frozen");
  const values = Object.getOwnPropertyNames(release).map((name) => release[name]);
  expect(values.every((value) => typeof value !== "function" && !value?.report), "a release exposes a part");
  expect(!("Entropy" in offaxis) && Entropy.length === 0, "an entropy takes a seed");
  expect(release.privatize.length === 2, "privatize takes more than a vector and answers");
  for (const seed of [42, "seed", { seed: 42 }, [42], false]) {
    await rejects("InvalidInput", () => release.privatize([1, 2, 3], seed), "a seed");
  }
  await rejects("InvalidInput", () => new offaxis.Release(Symbol("made by loadRelease")), "a forgery");
}

async function withoutRandomness(read) {
  const names = ["laplace", "privunit2", "response", "subset"];
  const releases = await Promise.all(names.map((name) => load(read, name)));
  globalThis.crypto.getRandomValues = () => {
    throw new Error("none today");
  };
  try {
    for (const release of releases) {
      await rejects("EntropyFailure", () => release.privatize([1, 2, 3]), "no randomness");
    }
  } finally {
    delete globalThis.crypto.getRandomValues; // the prototype has the real one
  }
  await releases[0].privatize([1, 2, 3]);
}

async function largeDraws() {
  const words = new Entropy().words(100_000); // more than one call of getRandomValues returns
  const high = words.filter((word) => word >= 1 << 15).length;
  // Ten standard deviations: false-alarm rate 1e-23.
  expect(Math.abs(high - 50_000) < 10 * Math.sqrt(25_000), `${high} of 100000 words are high`);
  expect(new Set(words.slice(-1000)).size > 900, "the last words are not random");
}

// A vector that cannot be rounded to the lattice fails after all noise was drawn.
async function noiseFirst() {
  const common = { dim: 3, radius: 2, epsilon: "3" };
  const ranks = { ...common, directions: 228, near: 28 };
  const forms = [
    new Laplace(asParameters({ ...common, log2_scale: 17 })),
    new PrivUnit2(asParameters({ ...ranks, target: "direction" })),
    new PrivUnit2(asParameters({ ...ranks, target: "vector" })),
  ];
  const schedule = { instant: "2", draws: 4, period: 90 };
  const second = { instant_directions: 228, instant_near: 28, target: "vector" };
  const memoised = new MemoisedPrivUnit2(asParameters({ ...ranks, ...schedule, ...second }));
  // Only the first layer reads the vector.
  forms.push({ report: (rows, bits) => memoised.hold(rows, bits) });
  for (const form of forms) {
    const [good, bad] = [new Tape("noise first"), new Tape("noise first")];
    await form.report([Float64Array.of(1, 2, 3)], good);
    await rejects("InvalidInput", () => form.report([Float64Array.of(1, NaN, 3)], bad), "a NaN");
    expect(good.used > 0 && good.used === bad.used, "noise was drawn after the vector was read");
  }
}

// The parameters of a release of sequences are read strictly, and ε∞ is computed from them.
async function schedules() {
  const symbols = { size: 4, epsilon: "2", instant: "2", draws: 4, period: 90 };
  const ranks = { directions: 228, near: 28, instant_directions: 228, instant_near: 28 };
  const rest = { instant: "2", draws: 4, period: 90, target: "vector" };
  const vectors = { dim: 3, radius: 2, epsilon: "3", ...ranks, ...rest };
  const forms = [
    [MemoisedResponse, symbols, "8"],
    [MemoisedPrivUnit2, vectors, "12"],
  ];
  for (const [Form, parameters, total] of forms) {
    const built = (changes) => new Form(asParameters({ ...parameters, ...changes }));
    expect(built({}).guaranteed.toString() === total && built({}).unit === "user", "ε∞");
    const endless = built({ draws: 0 });
    expect(endless.guaranteed.compare(endless.epsilon) === 0, "ε of one draw");
    expect(endless.unit === "item", "a sequence without an end is per user");
    const wrong = [
      ...[{ draws: 1001 }, { draws: -1 }, { draws: "4" }, { period: 0 }, { period: 65536 }],
      ...[{ instant: "0" }, { instant: "101" }, { instant: "4/2" }, { instant: 2 }, { more: 1 }],
      ...[{ epsilon: "100", draws: 1000 }, { epsilon: "2.0" }],
      // ε has 95 digits at most, and so has R·ε.
      { epsilon: `${"9".repeat(95)}/${"9".repeat(94)}1` },
    ];
    if (Form === MemoisedPrivUnit2) {
      wrong.push({ instant_directions: 3 }, { instant_near: 200 }, { target: "both" }, { near: 0 });
    }
    for (const changes of wrong) {
      await rejects("InvalidInput", () => built(changes), JSON.stringify(changes));
    }
  }
}

// Beyond the largest age, payloads have that age.
async function ages() {
  const form = new MemoisedResponse(
    asParameters({ size: 300, epsilon: "2", instant: "2", draws: 4, period: 90 }),
  );
  const held = await form.hold([7, 299], new Entropy());
  for (const [age, bytes] of [[0, [0, 0]], [258, [2, 1]], [65535, [255, 255]], [2 ** 53, [255, 255]]]) {
    for (const payload of await form.show(held, [age, age], new Entropy())) {
      expect(payload.length === 4 && payload.slice(0, 2).join() === bytes.join(), `age ${age}`);
    }
  }
}

async function changedMeanwhile(read) {
  const release = await load(read, "response");
  const bytes = await read("response.release");
  const loading = offaxis.loadRelease(bytes);
  bytes.fill(0);
  expect((await loading).hash === release.hash, "the bytes were not copied before the check");
}

// All checks; read(name) returns a file of tests/vectors.
export function checks(read) {
  return [
    ["vectors are rejected or reported", () => vectors(read)],
    ["answers are rejected or reported", () => answers(read)],
    ["messages without private values", () => messages(read)],
    ["the page's limit", () => limits(read)],
    ["sequences need a device", () => single(read)],
    ["pinned hashes", () => hashes(read)],
    ["no seed", () => noSeed(read)],
    ["no randomness, no report", () => withoutRandomness(read)],
    ["large draws", largeDraws],
    ["noise before the vector", noiseFirst],
    ["schedules of sequences", schedules],
    ["ages of permanent answers", ages],
    ["bytes changed meanwhile", () => changedMeanwhile(read)],
  ];
}
