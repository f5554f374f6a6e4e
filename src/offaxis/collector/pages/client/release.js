/**
 * A release: loaded from untrusted bytes and checked; it turns vectors into reports.
 *
 * The guarantee of a release is computed from its randomizer's parameters and must equal the claim
 * in the file (docs/release-format.md).
 */

import { answerCodes, answerIndex, readAsked } from "./asked.js";
import { readHeader, readMetadata, readTensors } from "./container.js";
import { DECODERS } from "./decoders.js";
import { ENCODERS } from "./encoders.js";
import { Entropy } from "./entropy.js";
import { InvalidInput, InvalidRelease, LimitExceeded, Unsupported, shown } from "./errors.js";
import { exact, exactEpsilon } from "./fraction.js";
import { LocalHashing } from "./hashing.js";
import { Laplace } from "./laplace.js";
import { parseManifest } from "./manifest.js";
import { MemoisedPrivUnit2, MemoisedResponse } from "./memoised.js";
import { PrivUnit2, PrivUnitG } from "./privunit.js";
import { HEADER_SIZE, frame, unframe } from "./reports.js";
import { KaryResponse } from "./response.js";
import { SubsetSelection } from "./subset.js";
import { sha256, toHex } from "./webcrypto.js";

const METADATA_KEY = "offaxis";
const RELATION = "replacement of the whole vector";
const FORMS = [
  ...[Laplace, PrivUnit2, PrivUnitG, KaryResponse, SubsetSelection, LocalHashing],
  ...[MemoisedResponse, MemoisedPrivUnit2],
];
const RANDOMIZERS = new Map(FORMS.map((form) => [form.kind, form]));

/** Read a release from untrusted bytes; `expect` pins the hash it must have. */
export async function loadRelease(bytes, { expect } = {}) {
  const content = asBytes(bytes);
  const head = readHeader(content);
  const text = readMetadata(head.header, METADATA_KEY);
  const newline = text.indexOf("\n");
  if (newline < 0) {
    throw new InvalidRelease("this is not an offaxis release: its manifest is incomplete");
  }
  const manifest = parseManifest(text.slice(newline + 1));
  const tensors = readTensors(content, head);
  const hash = await contentHash(text.slice(newline + 1), tensors);
  if (hash !== text.slice(0, newline)) {
    throw new InvalidRelease("the release was altered or damaged: its hash does not match");
  }
  if (expect !== undefined && hash !== String(expect).toLowerCase().replace(/^sha256:/, "")) {
    throw new InvalidRelease(`this is release ${hash}, expected ${shown(expect)}`);
  }
  try {
    return new Release(FROM_LOAD, hash, manifest, tensors);
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    throw new InvalidRelease(`the release cannot be used: ${error.message}`);
  }
}

/**
 * Return the unit that a file claims which was loaded before, without loading it again; "user", the
 * one that restricts more, if it cannot be read.
 */
export function claimedUnit(content) {
  try {
    const text = readMetadata(readHeader(content).header, METADATA_KEY);
    return parseManifest(text.slice(text.indexOf("\n") + 1)).get("guarantee").get("unit");
  } catch {
    return "user";
  }
}

/** Return a private copy, so that the bytes that are checked are the bytes that are used. */
function asBytes(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source.slice(0));
  if (source instanceof Uint8Array) return new Uint8Array(source);
  throw new InvalidRelease("a release must be an ArrayBuffer or a Uint8Array");
}

/** Hash the canonical manifest and every tensor, each preceded by its length. */
async function contentHash(manifest, tensors) {
  const encoder = new TextEncoder();
  const parts = [encoder.encode(`offaxis-release-1\nmanifest:${manifest.length}\n${manifest}`)];
  for (const name of [...tensors.keys()].sort()) {
    const { shape, bytes } = tensors.get(name);
    const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
    parts.push(encoder.encode(`${name}:${tuple}:${bytes.length}\n`), bytes);
  }
  return toHex(await sha256(await new Blob(parts).arrayBuffer()));
}

function buildMap(builders, part, tensors, prefix) {
  const kind = part.get("kind");
  const build = builders.get(kind);
  if (!build) {
    throw new Unsupported(
      `the ${prefix.replace("_", " ")} ${shown(kind)} is not supported in the browser`,
    );
  }
  const map = build(tensors, prefix);
  const sizes = [map.inputDim, map.outputDim].map(BigInt);
  if (sizes[0] !== part.get("input_dim") || sizes[1] !== part.get("output_dim")) {
    throw new InvalidRelease(`the sizes of a ${kind} map differ from the manifest`);
  }
  return map;
}

function buildRandomizer(part) {
  const form = RANDOMIZERS.get(part.get("kind"));
  if (!form) {
    throw new Unsupported(
      `the randomizer ${shown(part.get("kind"))} is not supported in the browser, only ` +
        [...RANDOMIZERS.keys()].join(", "),
    );
  }
  return new form(part.get("parameters"));
}

const FROM_LOAD = Symbol("made by loadRelease");

/**
 * Return the two layers of a release of sequences. For the device, which keeps a permanent answer
 * and shows it to nobody: index.js does not export it.
 */
export let layersOf;

/** A frozen release; created by loadRelease() only. */
export class Release {
  #encoder;
  #randomizer;
  #decoder;

  static {
    layersOf = (release) => ({
      hold: async (vector) => {
        const encoded = release.#encoder.encode(checkedVector(vector, release.inputDim));
        const [held] = await release.#randomizer.hold([encoded], new Entropy());
        return held;
      },
      show: async (held, age) => {
        const [payload] = await release.#randomizer.show([held], [age], new Entropy());
        return frame(payload, release.#randomizer.wireId, release.hash);
      },
    });
  }

  constructor(key, hash, manifest, tensors) {
    if (key !== FROM_LOAD) throw new InvalidInput("create a release with loadRelease()");
    this.#encoder = buildMap(ENCODERS, manifest.get("encoder"), tensors, "encoder");
    this.#decoder = buildMap(DECODERS, manifest.get("decoder"), tensors, "decoder");
    const mean = manifest.get("mean_decoder");
    const meanDecoder = mean && buildMap(DECODERS, mean, tensors, "mean_decoder");
    if (tensors.size) {
      throw new InvalidRelease(`the file has unknown tensors: ${shown([...tensors.keys()])}`);
    }
    this.#randomizer = buildRandomizer(manifest.get("randomizer"));
    const decoders = meanDecoder ? [this.#decoder, meanDecoder] : [this.#decoder];
    checkFit(this.#encoder, this.#randomizer, decoders);
    this.answers = readAnswers(manifest.get("answers"), this.#encoder, this.#randomizer);
    this.asked = readAsked(manifest.get("asked"), this.#encoder);
    this.hash = hash;
    this.guarantee = verifiedGuarantee(this.#randomizer, manifest.get("guarantee"));
    this.kind = manifest.get("randomizer").get("kind");
    this.sequence = scheduleOf(this.#randomizer);
    this.inputDim = this.#encoder.inputDim;
    this.outputDim = this.#decoder.outputDim;
    this.reportSize = HEADER_SIZE + this.#randomizer.payloadSize;
    this.provenance = plain(manifest.get("provenance"));
    Object.freeze(this);
  }

  /**
   * The public mean, as far as the release contains it; for clients without a vector. For pairs, the
   * row of a zero vector without answers.
   */
  get publicMean() {
    const { inputDim } = this.#decoder;
    const mean =
      this.#encoder.blankRow ??
      this.#decoder.priorMean ??
      this.#encoder.centre?.slice() ??
      this.#decoder.decode(new Float64Array(inputDim));
    // A decoder may return something other than a vector, and a file may contain any numbers.
    const usable = mean.length === this.inputDim && mean.every(Number.isFinite);
    return usable ? mean : new Float64Array(this.inputDim);
  }

  /** Throw LimitExceeded unless the guarantee of a report, or a sequence, is within the limit. */
  checkLimit({ epsilon, delta = 0, unit = "item" } = {}) {
    const [most, mostDelta] = [exactEpsilon(epsilon), exact(delta, "delta")];
    const { guarantee } = this;
    const within = exact(guarantee.epsilon, "epsilon").compare(most) <= 0;
    if (!within || exact(guarantee.delta, "delta").compare(mostDelta) > 0) {
      const what = this.sequence?.draws ? "a sequence of reports" : "a report";
      throw new LimitExceeded(
        `${what} would have ε = ${guarantee.epsilon}, δ = ${guarantee.delta}; ` +
          `this page allows up to ε = ${most}, δ = ${mostDelta} per report or sequence`,
      );
    }
    if (unit === "user" && guarantee.unit === "item") {
      throw new LimitExceeded("the guarantee is per item; this page requires one per user");
    }
  }

  /**
   * Join a vector and the person's answers to the row that a release of pairs takes; a release of
   * answers alone takes null for the vector.
   *
   * An answer is a class by its name or index, a number, which is clipped to its range, or null where
   * there is none and the release allows it. Several answers are an object with their names.
   */
  pair(vector, answers) {
    const codes = answerCodes(this.asked, answers);
    const row = new Float64Array(this.inputDim);
    const dim = this.inputDim - codes.length;
    row.set(checkedVector(dim ? vector : (vector ?? []), dim));
    row.set(codes, this.inputDim - codes.length);
    return row;
  }

  /**
   * Turn a private vector into a report that may leave the device; for pairs, a vector with the
   * person's answers as in pair(), or the row that pair() returns.
   *
   * Every call draws fresh randomness and spends the budget again: call it once per vector. A release
   * of sequences is for a Device, which keeps a person's permanent answer.
   */
  async privatize(vector, answers) {
    this.#requireSingleReports();
    const isRow = answers === undefined && vector?.length === this.inputDim;
    const row = isRow ? vector : this.pair(vector, answers);
    const encoded = this.#encoder.encode(checkedVector(row, this.inputDim));
    const [payload] = await this.#randomizer.report([encoded], new Entropy());
    return frame(payload, this.#randomizer.wireId, this.hash);
  }

  #requireSingleReports() {
    if (!this.sequence) return;
    throw new InvalidInput(
      "this release is for sequences, in which a person reports again and again from few permanent " +
        "answers: make reports with Device, which keeps these answers",
    );
  }

  /**
   * Turn a private answer, its index or its name, into a report, without a vector or a model.
   *
   * Every call draws fresh randomness and spends the budget again.
   */
  async privatizeAnswer(answer) {
    this.#requireSingleReports();
    if (!this.answers) {
      throw new InvalidInput("this release reports a vector: pass it to privatize()");
    }
    const { names, symbols } = this.answers;
    const symbol = symbols[answerIndex(names, answer)];
    const [payload] = await this.#randomizer.report([symbol], new Entropy());
    return frame(payload, this.#randomizer.wireId, this.hash);
  }

  /** Read a report strictly and return its observation (the randomizer's output), undecoded. */
  async observe(report) {
    const { wireId, payloadSize } = this.#randomizer;
    return this.#randomizer.read(unframe(report, wireId, this.hash, payloadSize));
  }

  /** Decode one report into a vector. */
  async decode(report) {
    return this.#decoder.decode(await this.observe(report));
  }
}

function checkFit(encoder, randomizer, decoders) {
  const { inner } = randomizer;
  const sizes = [encoder.outputDim, ...decoders.map((decoder) => decoder.inputDim)];
  if (sizes.some((size) => size !== inner)) {
    throw new InvalidInput(
      `the parts do not fit: the encoder gives ${sizes[0]} numbers, the randomizer takes ` +
        `${inner}, the decoder ${sizes[1]}`,
    );
  }
  if (Boolean(encoder.givesSymbols) !== Boolean(randomizer.takesSymbols)) {
    throw new InvalidInput("the parts do not fit: the encoder and the randomizer");
  }
  if (encoder.form && !decoders[0].fits?.(encoder, randomizer)) {
    throw new InvalidInput("nothing can be learnt from a release of pairs with these parts");
  }
  for (const decoder of decoders) decoder.bind?.(randomizer);
}

/** Check the names of a model's answers and the symbol of each; null without answers. */
function readAnswers(part, encoder, randomizer) {
  if (part === undefined) {
    if (encoder.symbols) throw new InvalidInput("a release of a model's answers must name them");
    return null;
  }
  const names = part.get("names");
  const [symbols, kept] = ["symbols", "kept"].map((name) => part.get(name).map(Number));
  const valid =
    randomizer.takesSymbols &&
    names.length >= 2 &&
    new Set(names).size === names.length &&
    symbols.length === names.length &&
    kept.length === randomizer.inner &&
    symbols.every((symbol) => symbol < kept.length) &&
    kept.every((answer, symbol) => symbols[answer] === symbol) &&
    (!encoder.symbols || symbols.every((symbol, i) => symbol === encoder.symbols[i])) &&
    (!encoder.symbols || encoder.symbols.length === symbols.length);
  if (!valid) throw new InvalidInput("every answer needs a symbol, and every symbol an answer");
  return Object.freeze({
    names: Object.freeze([...names]),
    symbols: Object.freeze(symbols),
    kept: Object.freeze(kept),
  });
}

/** Return when the device draws permanent answers; null if the release makes single reports. */
function scheduleOf({ draws, period, epsilon }) {
  if (draws === undefined) return null;
  return Object.freeze({ draws, period, epsilon: epsilon.toString() });
}

/** Compute the guarantee of one report or of a sequence, and compare it with the claim. */
function verifiedGuarantee(randomizer, claim) {
  const { unit = claim.get("unit"), guaranteed = randomizer.epsilon } = randomizer;
  if (claim.get("unit") !== unit) {
    throw new InvalidRelease(
      `this release of sequences is per ${unit}, not per ${claim.get("unit")}`,
    );
  }
  const computed = { epsilon: guaranteed.toString(), delta: "0", relation: RELATION };
  if (Object.entries(computed).some(([name, value]) => claim.get(name) !== value)) {
    throw new InvalidRelease(
      `the manifest promises ε=${claim.get("epsilon")}, δ=${claim.get("delta")} under ` +
        `${shown(claim.get("relation"))}, but its parameters give ε=${computed.epsilon}, pure`,
    );
  }
  return Object.freeze({ ...computed, unit, pure: true });
}

/** Return a private Float64Array of a finite vector, or throw; then nothing is released. */
export function checkedVector(vector, dim) {
  const list = Array.isArray(vector) || (ArrayBuffer.isView(vector) && "length" in vector);
  if (!list || vector.length !== dim) {
    throw new InvalidInput(`a vector must be an array of ${dim} numbers`);
  }
  const copy = new Float64Array(dim);
  for (let i = 0; i < dim; i++) {
    const entry = vector[i];
    if (!Number.isFinite(entry)) {
      // Text may be private; NaN and infinities are not.
      const got = typeof entry === "number" ? entry : `a ${typeof entry}`;
      throw new InvalidInput(`a vector must be finite, got ${got} at index ${i}`);
    }
    copy[i] = entry;
  }
  return copy;
}

/** Convert Maps to plain frozen objects. */
function plain(value) {
  if (!(value instanceof Map)) return typeof value === "bigint" ? Number(value) : value;
  const entries = [...value].map(([name, entry]) => [name, plain(entry)]);
  return Object.freeze(Object.assign(Object.create(null), Object.fromEntries(entries)));
}
