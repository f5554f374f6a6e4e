/**
 * Local hashing: pure ε, a public nonce and one of 65,536 points per report, for any number of symbols.
 *
 * The nonce places every symbol at a point. The d points from that of the true symbol on are near, and
 * each near one is exactly e^ε times as likely as each other one, whatever the places are
 * (docs/proofs.md, section 19). A report names the symbols within d points before its own. Everything
 * random is drawn before the true symbol is read.
 */

import { NONCE_BYTES } from "./directions.js";
import { InvalidInput, InvalidReport, shown } from "./errors.js";
import { Response } from "./exact.js";
import { checkEpsilon, checkInteger, readParameters } from "./parameters.js";
import { nonceBytes } from "./privunit.js";
import { aesStream } from "./webcrypto.js";

const LARGEST_EPSILON = 100;
const LARGEST_SIZE = 1 << 20;
const POINTS = 1 << 16;
const HASH_KEY = new TextEncoder().encode("offaxis hash v1.");
const BLOCK = 16;
const PER_BLOCK = BLOCK / 2;

export class LocalHashing {
  static kind = "hashing";
  wireId = 14;
  unbiased = true;
  takesSymbols = true;
  payloadSize = NONCE_BYTES + 2;
  #law;

  constructor(values) {
    const types = { size: "integer", epsilon: "text", near: "integer" };
    const read = readParameters(LocalHashing.kind, values, types);
    this.size = checkInteger(read.size, "size", 2, LARGEST_SIZE);
    this.epsilon = checkEpsilon(read.epsilon, LocalHashing.kind, LARGEST_EPSILON);
    /** d, the number of near points. */
    this.near = checkInteger(read.near, "near", 1, POINTS - 1);
  }

  /** Number of symbols. */
  get inner() {
    return this.size;
  }

  /** Return one exact payload for each symbol. */
  async report(symbols, bits) {
    for (const symbol of symbols) {
      if (!Number.isInteger(symbol) || symbol < 0 || symbol >= this.size) {
        throw new InvalidInput(`symbols must be in 0..${this.size - 1}, got ${shown(symbol)}`);
      }
    }
    this.#law ??= new Response(POINTS, this.near, this.epsilon);
    // Everything random is drawn before the input is read.
    const nonces = nonceBytes(bits.words((symbols.length * NONCE_BYTES) / 2));
    const draws = this.#law.draw(symbols.length, bits);
    const payloads = [];
    for (const [i, symbol] of symbols.entries()) {
      const payload = new Uint8Array(this.payloadSize);
      payload.set(nonces.subarray(NONCE_BYTES * i, NONCE_BYTES * (i + 1)));
      const { isNear, offset } = draws[i];
      const [place] = await places(payload, symbol, 1);
      const point = (place + offset + (isNear ? 0 : this.near)) % POINTS;
      new DataView(payload.buffer).setUint16(NONCE_BYTES, point, true);
      payloads.push(payload);
    }
    return payloads;
  }

  /** The ε of the law of one report, as a float. */
  get strength() {
    return this.epsilon.toNumber();
  }

  /** Return the unbiased estimate of the one-hot vector, k numbers. */
  async read(payload) {
    if (payload.length !== this.payloadSize) {
      throw new InvalidReport(`a hashing payload has ${this.payloadSize} bytes`);
    }
    const far = POINTS - this.near;
    const [q, gap] = [Math.exp(-this.strength), -Math.expm1(-this.strength)];
    const weight = (this.near + far * q) / gap;
    const point = payload[NONCE_BYTES] + 256 * payload[NONCE_BYTES + 1];
    const own = await places(payload, 0, this.size);
    return Float64Array.from(own, (place) => {
      return (point - place + POINTS) % POINTS < this.near ? weight / this.near : -weight / far;
    });
  }
}

/** Return the points of `count` symbols from `first` on: words of the key stream of the nonce. */
async function places(payload, first, count) {
  const counter = new Uint8Array(BLOCK);
  counter.set(payload.subarray(0, NONCE_BYTES));
  const block = Math.floor(first / PER_BLOCK);
  new DataView(counter.buffer).setUint32(NONCE_BYTES, block);
  const blocks = Math.ceil((first + count) / PER_BLOCK) - block;
  const stream = await aesStream(HASH_KEY, counter, BLOCK * blocks);
  const at = 2 * (first - PER_BLOCK * block);
  return Uint16Array.from({ length: count }, (_, i) => {
    return stream[at + 2 * i] | (stream[at + 2 * i + 1] << 8);
  });
}
