/**
 * k-ary randomized response: pure ε, one symbol per report.
 *
 * The true symbol is reported with probability e^ε / (e^ε + k − 1) and each other one with
 * 1 / (e^ε + k − 1), exactly (Warner 1965; Kairouz, Oh, Viswanath 2014). Coin and offset are drawn
 * before the true symbol is read.
 */

import { InvalidInput, InvalidReport, shown } from "./errors.js";
import { Response, selectSymbol } from "./exact.js";
import { checkEpsilon, checkInteger, readParameters } from "./parameters.js";

const LARGEST_EPSILON = 100;
const LARGEST_SIZE = 1 << 20;

export class KaryResponse {
  static kind = "response";
  wireId = 9;
  unbiased = true;
  takesSymbols = true;
  #law;

  constructor(values) {
    const types = { size: "integer", epsilon: "text" };
    const read = readParameters(KaryResponse.kind, values, types);
    this.size = checkInteger(read.size, "size", 2, LARGEST_SIZE);
    this.epsilon = checkEpsilon(read.epsilon, KaryResponse.kind, LARGEST_EPSILON);
  }

  /** Number of symbols. */
  get inner() {
    return this.size;
  }

  /** 1, 2 or 4 bytes: the smallest that can hold every symbol. */
  get payloadSize() {
    return this.size <= 1 << 8 ? 1 : this.size <= 1 << 16 ? 2 : 4;
  }

  /** Return one exact payload for each symbol. */
  async report(symbols, bits) {
    for (const symbol of symbols) {
      if (!Number.isInteger(symbol) || symbol < 0 || symbol >= this.size) {
        throw new InvalidInput(`symbols must be in 0..${this.size - 1}, got ${shown(symbol)}`);
      }
    }
    this.#law ??= new Response(this.size, 1, this.epsilon);
    // Everything random is drawn before the input is read.
    const draws = this.#law.draw(symbols.length, bits);
    return symbols.map((symbol, i) => {
      const reported = selectSymbol(draws[i], [symbol]);
      const payload = new Uint8Array(this.payloadSize);
      return payload.map((_, byte) => Math.floor(reported / 256 ** byte) % 256);
    });
  }

  /** Return the reported symbol, read strictly. */
  reportedSymbol(payload) {
    const symbol = payload.reduceRight((sum, byte) => 256 * sum + byte, 0);
    if (symbol >= this.size) {
      throw new InvalidReport("a response payload has a symbol that no client reports");
    }
    return symbol;
  }

  /** The ε of the law of one report, as a float. */
  get strength() {
    return this.epsilon.toNumber();
  }

  /** Return the unbiased estimate of the one-hot vector, k numbers. */
  async read(payload) {
    return observation(this.size, this.reportedSymbol(payload), this.strength);
  }
}

/** Return the unbiased estimate of the one-hot vector of a symbol whose odds are e^strength. */
export function observation(size, symbol, strength) {
  const [q, gap] = [Math.exp(-strength), -Math.expm1(-strength)];
  const observed = new Float64Array(size).fill(-q / gap);
  observed[symbol] = (1 + (size - 2) * q) / gap;
  return observed;
}
