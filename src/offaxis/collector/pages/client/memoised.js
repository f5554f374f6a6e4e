/**
 * Memoised randomizers: one person reports again and again, and all reports together are within ε∞.
 *
 * Contract: a device draws at most R permanent answers, at times that do not depend on any vector,
 * and draws every report from the permanent answer in force by fresh randomness. Then all its
 * reports together, of any sequence of vectors, are within R·ε (docs/proofs.md, section 23).
 *
 * The permanent answer is an ε-LDP report of the vector. The instantaneous layer is an ε₁-LDP report
 * of the permanent answer. A payload is the age of the permanent answer in rounds, two bytes, and
 * the payload of the instantaneous layer.
 */

import { Fraction, exactEpsilon } from "./fraction.js";
import { checkInteger, readParameters } from "./parameters.js";
import { PrivUnit2 } from "./privunit.js";
import { KaryResponse, observation } from "./response.js";

const AGE_BYTES = 2;
const OLDEST = 65535; // ages above it are reported as this one
const MOST_DRAWS = 1000;
const LONGEST_PERIOD = OLDEST;
const SCHEDULE = { instant: "text", draws: "integer", period: "integer" };

/** The common part: two layers and a schedule. A subclass defines what the second layer takes. */
class Memoised {
  constructor(read, permanent, instant) {
    this.permanent = permanent;
    this.instant = instant;
    /** ε of one permanent answer. */
    this.epsilon = permanent.epsilon;
    /** The most permanent answers that one person ever draws; 0 stands for no limit. */
    this.draws = checkInteger(read.draws, "draws", 0, MOST_DRAWS);
    /** Rounds between two draws. */
    this.period = checkInteger(read.period, "period", 1, LONGEST_PERIOD);
    /** R·ε for the whole sequence of a person; without a limit on draws, ε for each draw. */
    const most = new Fraction(BigInt(Math.max(1, this.draws)));
    // As text, so that the size of numerator and denominator is checked as well.
    this.guaranteed = exactEpsilon(permanent.epsilon.times(most).toString());
    /** The unit of privacy that such a release must have. */
    this.unit = this.draws ? "user" : "item";
    this.payloadSize = AGE_BYTES + instant.payloadSize;
  }

  /** Dimension of the input, or number of symbols. */
  get inner() {
    return this.permanent.inner;
  }

  /** Draw one permanent answer per row. The caller keeps it and shows it to nobody. */
  hold(rows, bits) {
    return this.permanent.report(rows, bits);
  }

  /** Draw one payload of each permanent answer, with its age in rounds. */
  async show(held, ages, bits) {
    const rows = [];
    for (const answer of held) rows.push(await this.answered(answer));
    const shown = await this.instant.report(rows, bits);
    return shown.map((payload, i) => {
      const aged = new Uint8Array(this.payloadSize);
      new DataView(aged.buffer).setUint16(0, Math.min(ages[i], OLDEST), true);
      aged.set(payload, AGE_BYTES);
      return aged;
    });
  }

  /** Return the first report of a new sequence per row; show() continues it. */
  async report(rows, bits) {
    const held = await this.hold(rows, bits);
    return this.show(held, held.map(() => 0), bits);
  }
}

/** The part of a payload without its age; a copy. */
const shownPart = (payload) => payload.slice(AGE_BYTES);

/** Return the parameters of a layer, named as its randomizer names them. */
const layer = (values, names) =>
  new Map(Object.entries(names).map(([name, from]) => [name, values.get(from)]));

/** A memoised sequence of symbols: k-ary response to k-ary response. */
export class MemoisedResponse extends Memoised {
  static kind = "memoised-response";
  wireId = 12;
  unbiased = true;
  takesSymbols = true;

  constructor(values) {
    const types = { size: "integer", epsilon: "text", ...SCHEDULE };
    const read = readParameters(MemoisedResponse.kind, values, types);
    super(
      read,
      new KaryResponse(layer(values, { size: "size", epsilon: "epsilon" })),
      new KaryResponse(layer(values, { size: "size", epsilon: "instant" })),
    );
  }

  answered(held) {
    return this.permanent.reportedSymbol(held);
  }

  /**
   * The logarithm of the odds of the input symbol in one report,
   * (e^{ε+ε₁} + k − 1)/(e^ε + e^{ε₁} + k − 2), without cancellation.
   */
  get strength() {
    const [first, second] = [this.permanent.strength, this.instant.strength];
    const others = Math.exp(first) + Math.exp(second) + this.inner - 2;
    return Math.log1p((Math.expm1(first) * Math.expm1(second)) / others);
  }

  reportedSymbol(payload) {
    return this.instant.reportedSymbol(shownPart(payload));
  }

  /** Return the unbiased estimate of the one-hot vector, k numbers. */
  async read(payload) {
    return observation(this.inner, this.reportedSymbol(payload), this.strength);
  }
}

/** A memoised sequence of directions: PrivUnit2 of the direction that PrivUnit2 named. */
export class MemoisedPrivUnit2 extends Memoised {
  static kind = "memoised-privunit2";
  wireId = 13;
  #scale;

  constructor(values) {
    const types = {
      ...{ dim: "integer", radius: "float", epsilon: "text", target: "text" },
      ...{ directions: "integer", near: "integer" },
      ...{ instant_directions: "integer", instant_near: "integer" },
      ...SCHEDULE,
    };
    const read = readParameters(MemoisedPrivUnit2.kind, values, types);
    const own = ["dim", "radius", "epsilon", "directions", "near", "target"];
    const instant = layer(values, {
      ...{ dim: "dim", epsilon: "instant" },
      ...{ directions: "instant_directions", near: "instant_near" },
    });
    super(
      read,
      new PrivUnit2(layer(values, Object.fromEntries(own.map((name) => [name, name])))),
      new PrivUnit2(instant.set("radius", 1).set("target", "direction")),
    );
    this.radius = this.permanent.radius;
    this.unbiased = this.permanent.unbiased;
  }

  answered(held) {
    return this.permanent.namedDirection(held);
  }

  /** The expected component of the reported direction along the input. */
  get mean() {
    return this.permanent.mean * this.instant.mean;
  }

  /** Return the reported direction, scaled to be unbiased for the target. */
  async read(payload) {
    this.#scale ??= this.radius / this.permanent.mean;
    return (await this.instant.read(shownPart(payload))).map((x) => x * this.#scale);
  }
}
