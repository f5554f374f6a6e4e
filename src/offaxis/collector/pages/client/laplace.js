/**
 * Laplace noise on the ℓ1 ball: pure ε.
 *
 * With t = 2**log2_scale and R = ⌊ε t / 2⌋ the ball of radius ρ is rounded to integers n with
 * Σ|n_i| <= R, and every coordinate gets discrete Laplace noise of scale t: the privacy loss
 * between two inputs is at most 2R/t <= ε, as an exact rational (docs/proofs.md, section 3).
 */

import { InvalidInput, InvalidReport } from "./errors.js";
import { DiscreteLaplace } from "./exact.js";
import { Fraction, bitLength } from "./fraction.js";
import { ontoLattice } from "./lattice.js";
import { checkDim, checkEpsilon, checkRadius, readParameters } from "./parameters.js";

const TAIL = 44n; // noise scales that one coordinate exceeds with probability e^{−44}
const LARGEST_EPSILON = 10_000;

/** Return the largest magnitude that `width` bytes can hold. */
const largest = (width) => 2 ** (8 * width - 1) - 1;

export class Laplace {
  static kind = "laplace";
  wireId = 1;
  unbiased = true;
  #sampler;

  constructor(values) {
    const types = { dim: "integer", radius: "float", epsilon: "text", log2_scale: "integer" };
    const read = readParameters(Laplace.kind, values, types);
    this.dim = checkDim(read.dim);
    this.radius = checkRadius(read.radius);
    this.epsilon = checkEpsilon(read.epsilon, Laplace.kind, LARGEST_EPSILON);
    const [b, widest] = [read.log2_scale, this.#widest(4)];
    if (!(b >= 0 && b <= widest)) {
      throw new InvalidInput(`log2_scale must be in 0..${widest}, got log2_scale=${b}`);
    }
    const scale = 1n << BigInt(b);
    const bound = (this.epsilon.numerator * scale) / (2n * this.epsilon.denominator);
    if (bound < 1n || new Fraction(2n * bound, scale).compare(this.epsilon) > 0) {
      throw new InvalidInput(`log2_scale=${b} leaves no lattice at epsilon=${this.epsilon}`);
    }
    this.log2Scale = b;
    this.bound = Number(bound);
    this.width = b <= this.#widest(3) ? 3 : 4;
  }

  /** Return the largest b for which (ε/2 + 44)·2**b fits into `width` bytes. */
  #widest(width) {
    const { numerator, denominator } = this.epsilon;
    const most = BigInt(largest(width)) * 2n * denominator;
    return bitLength(most / (numerator + 2n * TAIL * denominator)) - 1;
  }

  /** Dimension of the input. */
  get inner() {
    return this.dim;
  }

  get payloadSize() {
    return this.width * this.dim;
  }

  /** Return one exact payload for each Float64Array. */
  async report(rows, bits) {
    this.#sampler ??= new DiscreteLaplace(this.log2Scale, 8 * this.width);
    // The noise is drawn from the entropy alone, before the input is clipped.
    const noise = this.#sampler.draw(rows.length * this.dim, bits);
    return rows.map((row, i) => {
      const n = this.integers(row);
      const sums = n.map((value, j) => value + noise[i * this.dim + j]);
      return pack(sums, this.width);
    });
  }

  /** Return the lattice point that noise is added to, checked to be within the bound. */
  integers(row) {
    return ontoLattice(row, this.radius, 1, this.bound);
  }

  /** Return the noisy lattice point, in the units of the input. */
  async read(payload) {
    const step = this.radius / this.bound;
    return unpack(payload, this.width).map((y) => y * step);
  }
}

/** Clamp each coordinate and write it as little-endian offset binary. */
export function pack(values, width) {
  const most = largest(width);
  const payload = new Uint8Array(values.length * width);
  values.forEach((value, i) => {
    let offset = Math.max(-most, Math.min(most, value)) + most + 1;
    for (let byte = 0; byte < width; byte++) {
      payload[i * width + byte] = offset % 256;
      offset = Math.floor(offset / 256);
    }
  });
  return payload;
}

/** Invert pack(); a value that pack() never writes is an error. */
export function unpack(payload, width) {
  return Float64Array.from({ length: payload.length / width }, (_, i) => {
    let offset = 0;
    for (let byte = width - 1; byte >= 0; byte--) offset = 256 * offset + payload[i * width + byte];
    if (offset === 0) throw new InvalidReport("a payload has a value that no client writes");
    return offset - largest(width) - 1;
  });
}
