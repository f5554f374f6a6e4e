/**
 * PrivUnit2 and PrivUnitG in rank form: pure ε, with no assumption beyond the generator's, whatever
 * the floats do.
 *
 * The client draws a nonce, which expands to N public directions, ranks them by their correlation
 * with its vector, calls exactly c of them near, and reports one of the N: each near one is exactly
 * e^ε times as likely as each other one. A wrong ranking costs utility, never privacy
 * (docs/proofs.md, section 8).
 */

import { NONCE_BYTES, blocksPerPair, nearest, scores, spread, vector } from "./directions.js";
import { InvalidInput, InvalidReport } from "./errors.js";
import { Response, below, selectSymbol } from "./exact.js";
import { COIN_RANGE, direction, flipped, ontoLattice } from "./lattice.js";
import {
  checkDim,
  checkEpsilon,
  checkInteger,
  checkRadius,
  checkWord,
  readParameters,
} from "./parameters.js";
import { meanComponent } from "./ranks.js";

const LARGEST_EPSILON = 100;
const INPUT_BOUND = 1 << 20;
const INDEX_BYTES = 4;
const MOST_BLOCKS = 1 << 22; // of the key stream per report
const TYPES = {
  dim: "integer",
  radius: "float",
  epsilon: "text",
  directions: "integer",
  near: "integer",
  target: "text",
};

/** The common part; a subclass defines how directions are ranked and how a report is read. */
class RankForm {
  payloadSize = NONCE_BYTES + INDEX_BYTES;
  #response;
  #length;

  constructor(kind, read) {
    this.kind = kind;
    this.dim = checkDim(read.dim);
    this.radius = checkRadius(read.radius);
    this.epsilon = checkEpsilon(read.epsilon, kind, LARGEST_EPSILON);
    this.target = checkWord(read.target, "target", ["direction", "vector"]);
    const most = 2 * Math.max(1, Math.floor(MOST_BLOCKS / blocksPerPair(this.dim)));
    this.directions = checkInteger(read.directions, "directions", 2, most);
    if (this.directions % 2) {
      throw new InvalidInput(`directions must be even, got directions=${this.directions}`);
    }
    this.near = checkInteger(read.near, "near", 1, this.directions / 2);
    this.unbiased = this.target === "vector";
  }

  /** Dimension of the input. */
  get inner() {
    return this.dim;
  }

  /** Return one exact payload for each Float64Array. */
  async report(rows, bits) {
    this.#response ??= new Response(this.directions, this.near, this.epsilon);
    // Everything random is drawn before the input is ranked.
    const nonces = nonceBytes(bits.words((rows.length * NONCE_BYTES) / 2));
    const draws = this.#response.draw(rows.length, bits);
    const coins = this.target === "vector" ? below(COIN_RANGE, rows.length, bits) : null;
    const payloads = [];
    for (const [i, row] of rows.entries()) {
      const ranked = coins ? flipped(row, this.radius, coins[i]) : row;
      const payload = new Uint8Array(this.payloadSize);
      payload.set(nonces.subarray(NONCE_BYTES * i, NONCE_BYTES * (i + 1)));
      const near = await this.nearest(ranked, payload.subarray(0, NONCE_BYTES));
      new DataView(payload.buffer).setUint32(NONCE_BYTES, selectSymbol(draws[i], near), true);
      payloads.push(payload);
    }
    return payloads;
  }

  /** Return the direction of a vector as integers with Σn_i² <= 2**40, checked; zero stays zero. */
  integers(row) {
    return ontoLattice(direction(row), 1, 2, INPUT_BOUND);
  }

  /** Return the near directions of a vector under a nonce, ascending. */
  async nearest(row, nonce) {
    const ranked = await scores(nonce, this.directions / 2, this.integers(row), this.byAngle);
    return nearest(ranked, this.near);
  }

  /** The expected component of the reported vector along the input. */
  get mean() {
    const { law, dim, directions, near, epsilon } = this;
    return meanComponent(law, dim, directions / 2, near, epsilon.toNumber());
  }

  /** Return the reported direction, scaled to be unbiased for the target. */
  async read(payload) {
    this.#length ??= this.radius / this.mean;
    return (await this.namedDirection(payload)).map((x) => x * this.#length);
  }

  /** Return the reported direction itself. */
  async namedDirection(payload) {
    const index = new DataView(payload.buffer, payload.byteOffset).getUint32(NONCE_BYTES, true);
    if (index >= this.directions) {
      throw new InvalidReport(`a ${this.kind} payload has the index of no direction`);
    }
    const g = Float64Array.from(
      await vector(payload.subarray(0, NONCE_BYTES), Math.floor(index / 2), this.dim),
    );
    const unit = this.law === "gaussian" ? await spread() : length(g);
    const sign = index % 2 ? -1 : 1;
    return g.map((x) => (x / unit) * sign);
  }
}

const length = (g) => Math.sqrt(g.reduce((sum, x) => sum + x * x, 0));

/** Write 16-bit words as little-endian bytes. */
export function nonceBytes(words) {
  const bytes = new Uint8Array(2 * words.length);
  words.forEach((word, i) => bytes.set([word & 255, word >> 8], 2 * i));
  return bytes;
}

/** PrivUnit2 (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018): ranked by angle. */
export class PrivUnit2 extends RankForm {
  static kind = "privunit2";
  wireId = 3;
  byAngle = true;
  law = "angle";

  constructor(values) {
    super(PrivUnit2.kind, readParameters(PrivUnit2.kind, values, TYPES));
  }
}

/** PrivUnitG (Asi, Feldman, Talwar 2022): a Gaussian instead of a uniform direction. */
export class PrivUnitG extends RankForm {
  static kind = "privunitg";
  wireId = 4;
  byAngle = false;

  constructor(values) {
    const read = readParameters(PrivUnitG.kind, values, { ...TYPES, output: "text" });
    super(PrivUnitG.kind, read);
    this.law = checkWord(read.output, "output", ["gaussian", "sphere"]);
  }
}
