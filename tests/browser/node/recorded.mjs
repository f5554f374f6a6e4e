// The recorded vectors of tests/vectors, checked with the client in Node and in a page.
import { readHeader, readTensors } from "../../../src/offaxis/collector/pages/client/container.js";
import { nextReport } from "../../../src/offaxis/collector/pages/client/device/sequences.js";
import { nearest, table, vector } from "../../../src/offaxis/collector/pages/client/directions.js";
import { ENCODERS } from "../../../src/offaxis/collector/pages/client/encoders.js";
import {
  DiscreteLaplace,
  Probability,
  Response,
  below,
  chooseSubsets,
} from "../../../src/offaxis/collector/pages/client/exact.js";
import { exact } from "../../../src/offaxis/collector/pages/client/fraction.js";
import {
  BiasedDecoder,
  Unsupported,
  loadRelease,
} from "../../../src/offaxis/collector/pages/client/index.js";
import { LocalHashing } from "../../../src/offaxis/collector/pages/client/hashing.js";
import { Laplace, pack, unpack } from "../../../src/offaxis/collector/pages/client/laplace.js";
import { latticeLength } from "../../../src/offaxis/collector/pages/client/lattice.js";
import {
  MemoisedPrivUnit2,
  MemoisedResponse,
} from "../../../src/offaxis/collector/pages/client/memoised.js";
import { PrivUnit2, PrivUnitG } from "../../../src/offaxis/collector/pages/client/privunit.js";
import { KaryResponse } from "../../../src/offaxis/collector/pages/client/response.js";
import { SubsetSelection } from "../../../src/offaxis/collector/pages/client/subset.js";
import { Tape } from "./tape.mjs";

const FORMS = {
  laplace: Laplace,
  privunit2: PrivUnit2,
  privunitg: PrivUnitG,
  "privunitg-sphere": PrivUnitG,
  "privunit2-mean": PrivUnit2,
  "privunitg-mean": PrivUnitG,
};
const SYMBOLS = { response: KaryResponse, subset: SubsetSelection, hashing: LocalHashing };
const SEQUENCES = {
  "memoised-response": MemoisedResponse,
  "memoised-privunit2": MemoisedPrivUnit2,
  "memoised-privunit2-mean": MemoisedPrivUnit2,
};
const SEQUENCE_RELEASES = ["memoised-classes", "memoised-means", "memoised-directions"];
const RELEASES = [
  ...Object.keys(FORMS),
  ...["response", "subset", "class-response", "scalar-response", "task-aware"],
  ...["coordinatewise-laplace", "task-aware-network"],
];
const PAIRS = ["moments", "mixed", "number", "nothing", "cells", "optional", "right", "range"];
const ANSWERS = ["answers-classes", "answers-number", "answers-joint", "answers-many"];
const UNSUPPORTED = ["gaussian", "spherical-laplace", "duchi", "piecewise", "hybrid", "projunit"];

function equal(actual, expected, what) {
  const [a, b] = [actual, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: got ${a}, expected ${b}`);
}

export function close(actual, expected, what) {
  equal(actual.length, expected.length, `${what}: length`);
  expected.forEach((x, i) => {
    if (!(Math.abs(actual[i] - x) <= 1e-12 * Math.max(Math.abs(x), 1e-3))) {
      throw new Error(`${what}: got ${actual[i]}, expected ${x}`);
    }
  });
}

export const fromHex = (text) =>
  Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
export const toHex = (bytes) =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// A hexadecimal float of Python: 0x1.8p+1.
export function hexFloat(text) {
  const [, sign, head, digits, exponent] = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text);
  const mantissa = parseInt(head + digits, 16);
  // Two steps, so that a power of two below the normal range does not underflow on the way.
  const power = Number(exponent) - 4 * digits.length;
  const half = Math.trunc(power / 2);
  const value = mantissa * 2 ** half * 2 ** (power - half);
  return sign ? -value : value;
}

// Parameters as in a manifest: integers are BigInts, but a radius is a float.
export function asParameters(plain) {
  return new Map(
    Object.entries(plain).map(([name, value]) => [
      name,
      typeof value === "number" && name !== "radius" ? BigInt(value) : value,
    ]),
  );
}

// A tape in the place of crypto.getRandomValues, for the time of an action.
export async function withTape(tape, action) {
  globalThis.crypto.getRandomValues = (bytes) => {
    bytes.forEach((_, i) => (bytes[i] = Number(tape.integer(8))));
    return bytes;
  };
  try {
    return await action();
  } finally {
    delete globalThis.crypto.getRandomValues; // the prototype has the real one
  }
}

async function samplers(read) {
  const recorded = await read("samplers.json");
  const drawn = {
    discrete_laplace: ({ log2_scale: b }, tape) =>
      [...new DiscreteLaplace(b, b < 20 ? 24 : 32).draw(20, tape)],
    uniform: ({ limit }, tape) => [...below(limit, 20, tape)],
    bernoulli: ({ p }, tape) => Probability.of(exact(p, "p")).draw(20, tape).map(Number),
    subsets: ({ columns, chosen }, tape) =>
      chooseSubsets(columns, chosen, 5, tape).map(({ member }) => [...member]),
    response: ({ size, near, epsilon }, tape) =>
      new Response(size, near, exact(epsilon, "epsilon"))
        .draw(20, tape)
        .map(({ isNear, offset }) => [Number(isNear), offset]),
  };
  for (const [kind, draw] of Object.entries(drawn)) {
    for (const record of recorded[kind]) {
      const tape = new Tape(record.tape);
      equal(draw(record, tape), record.values, record.tape);
      equal(tape.used, record.bytes, `bytes of ${record.tape}`);
    }
  }
}

async function directions(read) {
  const recorded = await read("directions.json");
  const values = await table(); // throws if its hash is not the recorded one
  for (const [k, entry] of Object.entries(recorded.table)) equal(values[k], entry, `T[${k}]`);
  for (const { dim, pair, vector: expected } of recorded.vectors) {
    equal([...(await vector(fromHex(recorded.nonce), pair, dim))], expected, `pair ${pair}`);
  }
  equal(nearest(Float64Array.of(1, -1, 2, 1), 2), [0, 4], "ties go to the smaller pair");
}

async function integers(read) {
  for (const { values, width, payload } of (await read("payloads.json")).integers) {
    equal(toHex(pack(values, width)), payload, "packed");
    equal(toHex(pack([...unpack(fromHex(payload), width)], width)), payload, "packed again");
  }
}

async function vectors(read, name) {
  const record = (await read("payloads.json"))[name];
  const form = new FORMS[name](asParameters(record.parameters));
  const rows = record.inputs.map((row) => Float64Array.from(row, hexFloat));
  equal(rows.map((row) => [...form.integers(row)]), record.integers, "lattice points");
  const payloads = await form.report(rows, new Tape(record.tape));
  equal(payloads.map(toHex), record.payloads, "payloads");
  for (const [i, payload] of payloads.entries()) {
    close(await form.read(payload), record.observations[i], "observation");
    if (record.near) equal(await form.nearest(rows[i], payload.slice(0, 12)), record.near[i], "near");
  }
  if (record.mean) close([form.mean], [record.mean], "mean component");
  if (record.lengths) {
    equal(rows.map((row) => latticeLength(row, form.radius)), record.lengths, "lengths");
  }
}

async function symbols(read, name) {
  const record = (await read("payloads.json"))[name];
  const form = new SYMBOLS[name](asParameters(record.parameters));
  const payloads = await form.report(record.inputs, new Tape(record.tape));
  equal(payloads.map(toHex), record.payloads, "payloads");
  for (const [i, payload] of payloads.entries()) {
    close(await form.read(payload), record.observations[i], "observation");
  }
}

async function sequences(read, name) {
  const record = (await read("sequences.json"))[name];
  const form = new SEQUENCES[name](asParameters(record.parameters));
  equal(form.guaranteed.toString(), record.guarantee, "guarantee");
  const rows = record.inputs.map((input) =>
    typeof input === "number" ? input : Float64Array.from(input, hexFloat),
  );
  const tape = new Tape(record.tape);
  const held = await form.hold(rows, tape);
  equal(held.map(toHex), record.held, "permanent answers");
  for (const { age, payloads, observations } of record.shown) {
    const shown = await form.show(held, held.map(() => age), tape);
    equal(shown.map(toHex), payloads, `payloads at age ${age}`);
    for (const [i, payload] of shown.entries()) {
      close(await form.read(payload), observations[i], "observation");
    }
  }
  equal(tape.used, record.bytes, "bytes");
  if (record.mean) close([form.mean], [record.mean], "mean component");
}

async function release(read, name, file = "reports.json") {
  const record = (await read(file))[name];
  const loaded = await loadRelease(await read(`${name}.release`), { expect: record.release });
  equal(loaded.hash, record.release, "hash");
  for (const [i, report] of record.reports.entries()) {
    close(await loaded.decode(fromHex(report)), record.decoded[i], "decoded");
  }
  const zero = new Float32Array(loaded.inputDim);
  const fresh = loaded.sequence
    ? (await nextReport(loaded, null, 0, zero)).report
    : await loaded.privatize(zero);
  equal(fresh.length, loaded.reportSize, "size of a report");
  await loaded.decode(fresh);
}

// Rows, encodings, lattice points, and reports of the public API from a tape.
async function pairs(read, name, file = "pairs.json") {
  const record = (await read(file))[name];
  const content = await read(`${name}.release`);
  const loaded = await loadRelease(content, { expect: record.release });
  const sorted = (asked) => asked.map((part) => Object.entries(part).sort());
  equal(sorted(loaded.asked), sorted(record.asked), "what is asked");
  const encoder = ENCODERS.get(record.encoder)(readTensors(content, readHeader(content)), "encoder");
  const vectors = record.vectors.map((vector) => vector.map(hexFloat));
  const rows = vectors.map((vector, i) => loaded.pair(vector, record.answers[i]));
  equal(rows.map((row) => [...row]), record.rows.map((row) => row.map(hexFloat)), "rows");
  const encoded = rows.map((row) => encoder.encode(row));
  if (record.integers) {
    encoded.forEach((moments, i) => close(moments, record.encodings[i], "moments"));
    const form = new PrivUnit2(asParameters(record.parameters));
    equal(encoded.map((moments) => [...form.integers(moments)]), record.integers, "lattice points");
  } else equal(encoded, record.encodings, "symbols");
  const tape = new Tape(record.tape);
  const made = await withTape(tape, async () => {
    const reports = [];
    for (const [i, vector] of vectors.entries()) {
      reports.push(await loaded.privatize(vector, record.answers[i]));
    }
    return reports;
  });
  equal(made.map(toHex), record.reports, "reports");
  equal(tape.used, record.bytes, "bytes");
  const again = await withTape(new Tape(record.tape), () => loaded.privatize(rows[0]));
  equal(toHex(again), record.reports[0], "the report of a row");
  for (const [i, report] of made.entries()) {
    close(await loaded.observe(report), record.observations[i], "observation");
    const error = await loaded.decode(report).then(() => null, (thrown) => thrown);
    equal(error instanceof BiasedDecoder, true, "a decoded report of a pair");
  }
  const blank = await loaded.privatize(loaded.publicMean);
  equal(blank.length, loaded.reportSize, "size of a report");
}

async function unsupported(read, name) {
  try {
    await loadRelease(await read(`${name}.release`));
  } catch (error) {
    if (error instanceof Unsupported && /not supported in the browser/.test(error.message)) return;
    throw error;
  }
  throw new Error("an unsupported randomizer was loaded");
}

// All checks; read(name) returns a file of tests/vectors, parsed if it is JSON.
export function checks(read) {
  return [
    ["samplers", () => samplers(read)],
    ["directions", () => directions(read)],
    ["integers on the wire", () => integers(read)],
    ...Object.keys(FORMS).map((name) => [`payloads of ${name}`, () => vectors(read, name)]),
    ...Object.keys(SYMBOLS).map((name) => [`payloads of ${name}`, () => symbols(read, name)]),
    ...Object.keys(SEQUENCES).map((name) => [`sequence of ${name}`, () => sequences(read, name)]),
    ...SEQUENCE_RELEASES.map((name) => [
      `release ${name}`,
      () => release(read, name, "sequence-reports.json"),
    ]),
    ...RELEASES.map((name) => [`release ${name}`, () => release(read, name)]),
    ...PAIRS.map((name) => [`release pairs-${name}`, () => pairs(read, `pairs-${name}`)]),
    ...ANSWERS.map((name) => [`release ${name}`, () => pairs(read, name, "answers.json")]),
    ["second moments", () => pairs(read, "second-moments", "second-moments.json")],
    ...UNSUPPORTED.map((name) => [`${name} is not supported`, () => unsupported(read, name)]),
  ];
}
