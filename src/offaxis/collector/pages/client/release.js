/**
 * A release: loaded from untrusted bytes, checked, and then the way from a vector to a report.
 *
 * What a release promises is computed from its randomizer's parameters and must equal the claim in
 * the file (docs/release-format.md).
 */

import { readHeader, readMetadata, readTensors } from "./container.js";
import { DECODERS } from "./decoders.js";
import { ENCODERS } from "./encoders.js";
import { Entropy } from "./entropy.js";
import { InvalidInput, InvalidRelease, LimitExceeded, Unsupported, shown } from "./errors.js";
import { exact, exactEpsilon } from "./fraction.js";
import { Laplace } from "./laplace.js";
import { parseManifest } from "./manifest.js";
import { PrivUnit2, PrivUnitG } from "./privunit.js";
import { HEADER_SIZE, frame, unframe } from "./reports.js";
import { KaryResponse } from "./response.js";
import { sha256, toHex } from "./webcrypto.js";

const METADATA_KEY = "offaxis";
const RELATION = "replacement of the whole vector";
const RANDOMIZERS = new Map(
  [Laplace, PrivUnit2, PrivUnitG, KaryResponse].map((form) => [form.kind, form]),
);

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
    throw new InvalidRelease("the release was altered or damaged: its hash does not fit it");
  }
  if (expect !== undefined && hash !== String(expect).toLowerCase().replace(/^sha256:/, "")) {
    throw new InvalidRelease(`this is release ${hash}, expected ${shown(expect)}`);
  }
  try {
    return new Release(OWN, hash, manifest, tensors);
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    throw new InvalidRelease(`the release cannot be used: ${error.message}`);
  }
}

/** Return a private copy of what was given: what is checked is what is used. */
function asBytes(given) {
  if (given instanceof ArrayBuffer) return new Uint8Array(given.slice(0));
  if (given instanceof Uint8Array) return new Uint8Array(given);
  throw new InvalidRelease("a release is read from an ArrayBuffer or a Uint8Array");
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

function buildMap(known, part, tensors, prefix) {
  const kind = part.get("kind");
  const build = known.get(kind);
  if (!build) {
    throw new Unsupported(
      `the ${prefix.replace("_", " ")} ${shown(kind)} is not supported in the browser`,
    );
  }
  const map = build(tensors, prefix);
  const sizes = [map.inputDim, map.outputDim].map(BigInt);
  if (sizes[0] !== part.get("input_dim") || sizes[1] !== part.get("output_dim")) {
    throw new InvalidRelease(`a ${kind} map has other sizes than the manifest says`);
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

const OWN = Symbol("made by loadRelease");

/** A frozen release; made by loadRelease() only. */
export class Release {
  #encoder;
  #randomizer;
  #decoder;

  constructor(key, hash, manifest, tensors) {
    if (key !== OWN) throw new InvalidInput("a release is made by loadRelease()");
    this.#encoder = buildMap(ENCODERS, manifest.get("encoder"), tensors, "encoder");
    this.#decoder = buildMap(DECODERS, manifest.get("decoder"), tensors, "decoder");
    const mean = manifest.get("mean_decoder");
    const meanDecoder = mean && buildMap(DECODERS, mean, tensors, "mean_decoder");
    if (tensors.size) {
      throw new InvalidRelease(`the file holds unknown tensors: ${shown([...tensors.keys()])}`);
    }
    this.#randomizer = buildRandomizer(manifest.get("randomizer"));
    const decoders = meanDecoder ? [this.#decoder, meanDecoder] : [this.#decoder];
    checkFit(this.#encoder, this.#randomizer, decoders);
    this.hash = hash;
    this.guarantee = guarantee(this.#randomizer, manifest.get("guarantee"));
    this.kind = manifest.get("randomizer").get("kind");
    this.inputDim = this.#encoder.inputDim;
    this.outputDim = this.#decoder.outputDim;
    this.reportSize = HEADER_SIZE + this.#randomizer.payloadSize;
    this.givesMeans = decoders.at(-1).unbiased && this.#randomizer.unbiased;
    this.provenance = plain(manifest.get("provenance"));
    Object.freeze(this);
  }

  /** The public mean, as well as the release knows it: for who has no vector to report. */
  get publicMean() {
    const { inputDim } = this.#decoder;
    const mean =
      this.#decoder.priorMean ??
      this.#encoder.centre?.slice() ??
      this.#decoder.decode(new Float64Array(inputDim));
    // Decoders may answer something else than a vector, and files may hold any numbers.
    const usable = mean.length === this.inputDim && mean.every(Number.isFinite);
    return usable ? mean : new Float64Array(this.inputDim);
  }

  /** Throw LimitExceeded unless one report promises at least what the page asks for. */
  checkLimit({ epsilon, delta = 0, unit = "item" } = {}) {
    const [most, mostDelta] = [exactEpsilon(epsilon), exact(delta, "delta")];
    const found = this.guarantee;
    const within = exact(found.epsilon, "epsilon").compare(most) <= 0;
    if (!within || exact(found.delta, "delta").compare(mostDelta) > 0) {
      throw new LimitExceeded(
        `a report would promise ε = ${found.epsilon}, δ = ${found.delta}; ` +
          `this page gives up to ε = ${most}, δ = ${mostDelta} in one`,
      );
    }
    if (found.unit !== unit) {
      throw new LimitExceeded(`a report would be per ${found.unit}; this page reports ${unit}s`);
    }
  }

  /**
   * Turn a private vector into a report that may leave the device.
   *
   * Every call draws fresh randomness and spends the budget again: call it once a vector.
   */
  async privatize(vector) {
    const encoded = this.#encoder.encode(checkedVector(vector, this.inputDim));
    const [payload] = await this.#randomizer.report([encoded], new Entropy());
    return frame(payload, this.#randomizer.wireId, this.hash);
  }

  /** Read a report strictly and return what the randomizer let through, undecoded. */
  async observe(report) {
    const { wireId, payloadSize } = this.#randomizer;
    return this.#randomizer.read(unframe(report, wireId, this.hash, payloadSize));
  }

  /** Turn one report into a vector. */
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
  for (const decoder of decoders) decoder.bind?.(randomizer);
}

/** Compute what one report promises, and compare it with the claim. */
function guarantee(randomizer, claim) {
  const found = { epsilon: randomizer.epsilon.toString(), delta: "0", relation: RELATION };
  if (Object.entries(found).some(([name, value]) => claim.get(name) !== value)) {
    throw new InvalidRelease(
      `the manifest promises ε=${claim.get("epsilon")}, δ=${claim.get("delta")} under ` +
        `${shown(claim.get("relation"))}, but its parameters give ε=${found.epsilon}, pure`,
    );
  }
  return Object.freeze({ ...found, unit: claim.get("unit"), pure: true });
}

/** Return a private Float64Array of a finite vector, or refuse it; nothing is released then. */
export function checkedVector(vector, dim) {
  const list = Array.isArray(vector) || (ArrayBuffer.isView(vector) && "length" in vector);
  if (!list || vector.length !== dim) {
    throw new InvalidInput(`a vector must be an array of ${dim} numbers`);
  }
  const copy = new Float64Array(dim);
  for (let i = 0; i < dim; i++) {
    const entry = vector[i];
    if (typeof entry !== "number" || !Number.isFinite(entry)) {
      throw new InvalidInput(`a vector must be finite numbers, got ${shown(entry)} at index ${i}`);
    }
    copy[i] = entry;
  }
  return copy;
}

/** Turn Maps into plain frozen objects, for reading. */
function plain(value) {
  if (!(value instanceof Map)) return typeof value === "bigint" ? Number(value) : value;
  const entries = [...value].map(([name, entry]) => [name, plain(entry)]);
  return Object.freeze(Object.assign(Object.create(null), Object.fromEntries(entries)));
}
