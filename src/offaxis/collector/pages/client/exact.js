/**
 * Exact samplers: coins with certified digits, a uniform choice, subsets, discrete Laplace noise and
 * randomized response. They use integers only; no decision depends on a float.
 *
 * Every sampler draws from `bits`, an object with `words(count)` and `integer(bits)`; releases pass
 * an Entropy. The laws, proofs and the order in which bits are used are those of docs/proofs.md
 * (sections 4, 5 and 8).
 */

import { Fraction, bitLength } from "./fraction.js";

const WORDS = 2 ** 32;
const MOST_COLUMNS = 1 << 20;

/** Return ⌈a / b⌉ of BigInts, b > 0. */
const ceil = (a, b) => (a > 0n ? (a + b - 1n) / b : -(-a / b));

/** Enclose exp(−x), x > 0: BigInts with low <= exp(−x)·2**bits <= high. */
export function expMinus(x, bits) {
  // Halved until at most 1/2, where the partial sums of the series alternate around the limit.
  const halvings = bitLength((2n * x.numerator) / x.denominator);
  const precision = BigInt(bits + halvings + 16);
  const one = 1n << precision;
  const yLow = (x.numerator << (precision - BigInt(halvings))) / x.denominator;
  const yHigh = yLow + 1n;
  let [termLow, termHigh, low, high] = [one, one, one, one];
  for (let order = 1n; termHigh > 1n; order++) {
    termLow = (termLow * yLow) / (order << precision);
    termHigh = ceil(termHigh * yHigh, order << precision);
    if (order % 2n) [low, high] = [low - termHigh, high - termLow];
    else [low, high] = [low + termLow, high + termHigh];
  }
  // The remainder is smaller than the last term.
  low -= termHigh;
  high += termHigh;
  for (let i = 0; i < halvings; i++) {
    low = (low * low) >> precision;
    high = ceil(high * high, one);
  }
  const unit = 1n << (precision - BigInt(bits));
  return [low / unit, ceil(high, unit)];
}

/** Enclose 1 / (1 + exp(x)), x > 0. */
function logisticMinus(x, bits) {
  const [low, high] = expMinus(x, bits + 2);
  const one = 1n << BigInt(bits + 2);
  const shift = BigInt(bits);
  return [(low << shift) / (one + low), ceil(high << shift, one + high)];
}

/** Enclose near / (near + far·exp(−x)): the probability of a group whose members weigh e^x. */
function preferred(near, far, x, bits) {
  const precision = bits + 2 + bitLength(far);
  const [low, high] = expMinus(x, precision);
  const one = 1n << BigInt(precision);
  const top = (near << BigInt(bits)) * one;
  return [top / (near * one + far * high), ceil(top, near * one + far * low)];
}

/** A probability p known by certified enclosures: U < p is decided digit by digit. */
export class Probability {
  #enclose;
  #computed = new Map();

  constructor(enclose) {
    this.#enclose = enclose;
  }

  /** Return a rational probability, 0 <= p <= 1. */
  static of({ numerator, denominator }) {
    return new Probability((bits) => {
      const scaled = numerator << BigInt(bits);
      return [scaled / denominator, ceil(scaled, denominator)];
    });
  }

  /** Return floor(p · 2**bits). */
  digits(bits) {
    for (let guard = 16; !this.#computed.has(bits); guard *= 2) {
      const [low, high] = this.#enclose(bits + guard).map((value) => value >> BigInt(guard));
      if (low === high) this.#computed.set(bits, low);
    }
    return this.#computed.get(bits);
  }

  /** Decide U < p for a uniform U whose first `matched` digits are those of p. */
  exceeds(matched, bits) {
    for (;;) {
      const fresh = bits.integer(64);
      const next = BigInt.asUintN(64, this.digits(matched + 64));
      if (fresh !== next) return fresh < next;
      matched += 64;
    }
  }

  /** Flip `count` independent coins, true with probability p exactly. */
  draw(count, bits) {
    const words = longWords(count, bits);
    const head = Number(this.digits(32)); // 2**32 when p = 1, which no word reaches
    return Array.from(words, (word) => (word === head ? this.exceeds(32, bits) : word < head));
  }
}

/** A coin of probability near·e^ε / (near·e^ε + far): that of a group whose members weigh e^ε. */
export function preferredCoin(near, far, epsilon) {
  const [c, rest] = [BigInt(near), BigInt(far)];
  return new Probability((bits) => preferred(c, rest, epsilon, bits));
}

function longWords(count, bits) {
  const halves = bits.words(2 * count);
  return Float64Array.from({ length: count }, (_, i) => halves[2 * i] + 65536 * halves[2 * i + 1]);
}

/** Draw `count` independent uniform integers in [0, limit), limit <= 2**32, without bias. */
export function below(limit, count, bits) {
  if (!(limit >= 1 && limit <= WORDS)) throw new RangeError(`limit must be in 1..2**32: ${limit}`);
  const complete = WORDS - (WORDS % limit);
  const words = longWords(count, bits);
  let missing = [...words.keys()].filter((i) => words[i] >= complete);
  while (missing.length) {
    const fresh = longWords(missing.length, bits);
    missing.forEach((index, i) => (words[index] = fresh[i]));
    missing = missing.filter((i) => words[i] >= complete);
  }
  return words.map((word) => word % limit);
}

/**
 * Draw `rows` independent subsets of `chosen` columns, each as {member, last}: a flag per column, and
 * one member. Every pair of a subset and a member is equally likely.
 *
 * Every column gets a random 32-bit key. The subset has the `chosen` smallest keys, and the member the
 * largest of these. A row in which another column has that same key is drawn again. How often that
 * happens depends on the keys alone.
 */
export function chooseSubsets(columns, chosen, rows, bits) {
  if (!(chosen >= 1 && chosen <= columns && columns <= MOST_COLUMNS)) {
    throw new RangeError(`cannot choose ${chosen} of ${columns} columns`);
  }
  const subsets = new Array(rows);
  let missing = [...subsets.keys()];
  while (missing.length) {
    const drawn = longWords(missing.length * columns, bits);
    missing = missing.filter((index, i) => {
      const keys = drawn.subarray(i * columns, (i + 1) * columns);
      const edge = keys.slice().sort()[chosen - 1];
      subsets[index] = { member: keys.map((key) => key <= edge), last: keys.indexOf(edge) };
      return keys.indexOf(edge, subsets[index].last + 1) >= 0;
    });
  }
  return subsets;
}

const CHUNK = 4096;
const SIGN = 0x8000;

/**
 * The discrete Laplace law, Pr[K = k] = tanh(1/2t) e^{−|k|/t}, t = 2**log2Scale, saturated at
 * ±2**digits: the digits of a geometric variable are independent coins.
 */
export class DiscreteLaplace {
  #log2Scale;
  #digits;
  #coins;
  #heads;
  #overflow;

  constructor(log2Scale, digits) {
    // Restricted to where the overflow test below is valid.
    if (![24, 32].includes(digits) || !(log2Scale >= 0 && log2Scale <= digits - 4)) {
      throw new RangeError(`no sampler for log2Scale=${log2Scale}, digits=${digits}`);
    }
    this.#log2Scale = log2Scale;
    this.#digits = digits;
    this.#coins = Array.from({ length: digits }, (_, i) => {
      const x = this.#scales(digits - 1 - i);
      return new Probability((bits) => logisticMinus(x, bits));
    });
    this.#heads = this.#coins.map((coin) => Number(coin.digits(16)));
    const beyond = this.#scales(digits);
    this.#overflow = new Probability((bits) => expMinus(beyond, bits));
  }

  /** Return 2**digit in noise scales. */
  #scales(digit) {
    const power = digit - this.#log2Scale;
    return power < 0 ? new Fraction(1n, 1n << BigInt(-power)) : new Fraction(1n << BigInt(power));
  }

  /** Draw `count` independent variables. */
  draw(count, bits) {
    const out = new Float64Array(count);
    for (let start = 0; start < count; start += CHUNK) {
      out.set(this.#drawChunk(Math.min(CHUNK, count - start), bits), start);
    }
    return out;
  }

  #drawChunk(count, bits) {
    const values = this.#magnitudes(count, bits);
    const tail = bits.words(count);
    // e^{−2**(d − b)} starts with at least 15 zero digits, so overflow needs 15 zero bits.
    for (let i = 0; i < count; i++) {
      if ((tail[i] & ~SIGN) === 0 && this.#overflow.exceeds(15, bits)) {
        values[i] = 2 ** this.#digits;
      }
    }
    const minusZero = [];
    for (let i = 0; i < count; i++) {
      if (tail[i] < SIGN) continue;
      if (values[i] === 0) minusZero.push(i);
      else values[i] = -values[i];
    }
    if (minusZero.length) {
      const again = this.#drawChunk(minusZero.length, bits);
      minusZero.forEach((index, i) => (values[index] = again[i]));
    }
    return values;
  }

  #magnitudes(count, bits) {
    const digits = this.#digits;
    const words = bits.words(count * digits);
    const values = new Float64Array(count);
    for (let i = 0; i < words.length; i++) {
      const digit = i % digits;
      const head = this.#heads[digit];
      const isOne = words[i] === head ? this.#coins[digit].exceeds(16, bits) : words[i] < head;
      const index = (i - digit) / digits;
      values[index] = 2 * values[index] + (isOne ? 1 : 0);
    }
    return values;
  }
}

/** The law on `size` symbols with weight e^ε for each of `near` preferred ones and 1 for others. */
export class Response {
  #coin;

  constructor(size, near, epsilon) {
    if (!(near >= 1 && near < size && size <= WORDS) || epsilon.numerator <= 0n) {
      throw new RangeError(`no such response: size=${size}, near=${near}, epsilon=${epsilon}`);
    }
    this.size = size;
    this.near = near;
    this.#coin = preferredCoin(near, size - near, epsilon);
  }

  /** Draw responses as {isNear, offset}: the group, and the position in it. */
  draw(count, bits) {
    const isNear = this.#coin.draw(count, bits);
    // Both offsets are drawn for every response, so that the work does not reveal which is used.
    const near = below(this.near, count, bits);
    const far = below(this.size - this.near, count, bits);
    return isNear.map((flag, i) => ({ isNear: flag, offset: flag ? near[i] : far[i] }));
  }
}

/** Return the symbol that a draw selects, given the preferred symbols in ascending order. */
export function selectSymbol({ isNear, offset }, preferredSymbols) {
  let skipped = 0;
  preferredSymbols.forEach((symbol, i) => (skipped += symbol - i <= offset ? 1 : 0));
  const chosen = preferredSymbols[isNear ? offset : 0];
  return isNear ? chosen : offset + skipped;
}
