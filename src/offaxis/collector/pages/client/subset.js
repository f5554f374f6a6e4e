/**
 * Subset selection: pure ε, a set of d of k symbols per report.
 *
 * A set that contains the true symbol has weight e^ε, any other 1 (Wang et al. 2016; Ye, Barg 2018).
 * So the true symbol is in the set with probability d e^ε / (d e^ε + k − d), and given that, the
 * others in it are uniform. The coin, a set of d of the k − 1 others and a member of it are drawn
 * before the true symbol is read; on heads the true symbol replaces that member.
 */

import { InvalidInput, InvalidReport, shown } from "./errors.js";
import { chooseSubsets, preferredCoin } from "./exact.js";
import { checkEpsilon, checkInteger, readParameters } from "./parameters.js";

const LARGEST_EPSILON = 100;
const LARGEST_SIZE = 1 << 16;
const PART = 1 << 20; // random keys in memory at a time

export class SubsetSelection {
  static kind = "subset";
  wireId = 10;
  unbiased = true;
  takesSymbols = true;
  #coin;

  constructor(values) {
    const types = { size: "integer", epsilon: "text", chosen: "integer" };
    const read = readParameters(SubsetSelection.kind, values, types);
    this.size = checkInteger(read.size, "size", 2, LARGEST_SIZE);
    this.epsilon = checkEpsilon(read.epsilon, SubsetSelection.kind, LARGEST_EPSILON);
    /** d, the size of the sets. */
    this.chosen = checkInteger(read.chosen, "chosen", 1, this.size - 1);
  }

  /** Number of symbols. */
  get inner() {
    return this.size;
  }

  /** One bit per symbol. */
  get payloadSize() {
    return Math.ceil(this.size / 8);
  }

  /** Return one exact payload for each symbol. */
  async report(symbols, bits) {
    for (const symbol of symbols) {
      if (!Number.isInteger(symbol) || symbol < 0 || symbol >= this.size) {
        throw new InvalidInput(`symbols must be in 0..${this.size - 1}, got ${shown(symbol)}`);
      }
    }
    this.#coin ??= preferredCoin(this.chosen, this.size - this.chosen, this.epsilon);
    const rows = Math.max(1, Math.floor(PART / this.size));
    const payloads = [];
    for (let start = 0; start < symbols.length; start += rows) {
      const part = symbols.slice(start, start + rows);
      // Everything random is drawn before the input is read.
      const isNear = this.#coin.draw(part.length, bits);
      const drawn = chooseSubsets(this.size - 1, this.chosen, part.length, bits);
      part.forEach((symbol, i) => payloads.push(this.#packed(symbol, isNear[i], drawn[i])));
    }
    return payloads;
  }

  /**
   * Return the payload of a set among the symbols other than the true one, which replaces the member
   * `last` if `isNear`. The other symbols keep their numbers, except that the last symbol takes the
   * number of the true one.
   */
  #packed(own, isNear, { member, last }) {
    const named = new Uint8Array(this.size);
    named.set(member);
    if (isNear) named[last] = 0;
    named[this.size - 1] = own < this.size - 1 ? named[own] : 0;
    named[own] = isNear ? 1 : 0;
    const payload = new Uint8Array(this.payloadSize);
    named.forEach((flag, symbol) => (payload[symbol >> 3] |= flag << (symbol & 7)));
    return payload;
  }

  /** Return a flag per symbol, read strictly: d of them are set, and no bit beyond the last one. */
  namedSymbols(payload) {
    const named = Uint8Array.from({ length: 8 * payload.length }, (_, symbol) => {
      return (payload[symbol >> 3] >> (symbol & 7)) & 1;
    });
    const count = named.reduce((sum, flag) => sum + flag, 0);
    if (count !== this.chosen || named.subarray(this.size).includes(1)) {
      throw new InvalidReport(
        `a subset payload names ${this.chosen} of ${this.size} symbols, and nothing else`,
      );
    }
    return named.subarray(0, this.size);
  }

  /** The ε of the law of one report, as a float. */
  get strength() {
    return this.epsilon.toNumber();
  }

  /** Return the unbiased estimate of the one-hot vector, k numbers. */
  async read(payload) {
    const { size: k, chosen: d, strength } = this;
    const [q, gap] = [Math.exp(-strength), -Math.expm1(-strength)];
    const outside = -(d - 1 + (k - d) * q) / ((k - d) * gap);
    const inside = (d + (k - 1 - d) * q) / (d * gap);
    return Float64Array.from(this.namedSymbols(payload), (flag) => (flag ? inside : outside));
  }
}
