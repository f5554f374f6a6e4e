/** Decoders: public maps from an observation to a vector, for display in a page. */

import { BiasedDecoder, InvalidInput, Unsupported } from "./errors.js";
import { Network, add, asMap, asShift, multiply, take } from "./encoders.js";

const MOST_POINTS = 4096;
const MOST_CODES = 1 << 20;
const MOST_VALUES = 1 << 16;

/** z = B v + c; as shrinkage it shrinks towards c, and a mean of it is biased. */
class Linear {
  constructor(tensors, prefix, unbiased) {
    const [matrix, offset] = take(tensors, prefix, "matrix", "offset");
    this.matrix = asMap(matrix, offset, 0);
    this.offset = offset.values;
    this.unbiased = unbiased;
  }

  get inputDim() {
    return this.matrix.columns;
  }

  get outputDim() {
    return this.matrix.rows;
  }

  decode(observation) {
    return add(multiply(this.matrix, observation), this.offset);
  }
}

/** z = v + c. */
class Shift {
  unbiased = true;

  constructor(tensors, prefix) {
    this.offset = asShift(take(tensors, prefix, "offset")[0]);
  }

  get inputDim() {
    return this.offset.length;
  }

  get outputDim() {
    return this.offset.length;
  }

  decode(observation) {
    return add(observation, this.offset);
  }
}

/** z = network(v). */
class NetworkDecoder extends Network {
  unbiased = false;

  decode(observation) {
    return this.apply(observation);
  }
}

/** z = the codeword of the reported symbol. */
class Codeword {
  unbiased = false;

  constructor(tensors, prefix) {
    const [codewords, prior] = take(tensors, prefix, "codewords", "prior");
    this.codewords = asMap(codewords, prior, 0);
    this.prior = prior.values;
    checkPositive(this.prior);
  }

  get inputDim() {
    return this.codewords.rows;
  }

  get outputDim() {
    return this.codewords.columns;
  }

  get priorMean() {
    return weighted(this.codewords, this.prior);
  }

  codeword(symbol) {
    const { columns, values } = this.codewords;
    return values.slice(symbol * columns, (symbol + 1) * columns);
  }

  decode(observation) {
    let best = 0;
    const weights = this.prior.map((share, j) => (observation[j] > 0 ? share : 0));
    weights.forEach((weight, j) => {
      if (weight > weights[best]) best = j;
    });
    return this.codeword(best);
  }
}

/**
 * The mean of the codewords: the reported one weighs e^ε times its share, others their share, with
 * the ε of the law of one report.
 */
class PosteriorCodeword extends Codeword {
  bind(randomizer) {
    if (!randomizer.takesSymbols) {
      throw new InvalidInput("a posterior-codeword decoder takes symbols, not vectors");
    }
    this.strength = randomizer.strength;
  }

  decode(observation) {
    const background = Math.exp(-this.strength);
    const mean = new Float64Array(this.outputDim);
    let mass = 0;
    this.prior.forEach((share, j) => {
      const weight = share * (observation[j] > 0 ? 1 : background);
      mass += weight;
      this.codeword(j).forEach((x, i) => (mean[i] += weight * x));
    });
    return mean.map((x) => x / mass);
  }
}

/** A posterior mean over public points: checked like every part, but not decoded in the browser. */
class Posterior {
  unbiased = false;

  constructor(tensors, prefix) {
    const [points, encoded, prior] = take(tensors, prefix, "points", "encoded", "prior");
    this.points = asMap(points, prior, 0);
    this.prior = prior.values;
    this.outputDim = this.points.columns;
    this.inputDim = asMap(encoded, prior, 0).columns;
    if (prior.values.length > MOST_POINTS) {
      throw new InvalidInput(`a posterior has at most ${MOST_POINTS} points`);
    }
    checkPositive(prior.values);
  }

  get priorMean() {
    return weighted(this.points, this.prior);
  }

  bind(randomizer) {
    if (randomizer.takesSymbols) {
      throw new InvalidInput("a posterior decoder takes vectors, not symbols");
    }
  }

  decode() {
    throw new Unsupported("posterior decoders are not supported in the browser; decode in Python");
  }
}

/** Public facts to learn from reports of pairs with: they decode no report. */
class PairDecoder {
  unbiased = false;
  /** A decoded report would have no dimension. */
  outputDim = 1;
  /** No vector either. */
  priorMean = new Float64Array(0);

  /** Whether something can be learnt from reports of these parts. */
  fits(encoder, randomizer) {
    return Boolean(randomizer.takesSymbols);
  }

  decode() {
    throw new BiasedDecoder(
      "a report of this release is about a vector and a private answer together, so it decodes to " +
        "no vector: learn from many reports in Python",
    );
  }
}

/** Second moments and means of the features, and how many numbers the codes of all answers have. */
class PairMoments extends PairDecoder {
  constructor(tensors, prefix) {
    super();
    const [second, mean, width] = take(tensors, prefix, "second", "mean", "width");
    const { rows, columns, values } = asMap(second, mean, 0);
    const near = (a, b) => Math.abs(a - b) <= 1e-9 + 1e-5 * Math.abs(b);
    const mirrored = (x, at) => near(x, values[(at % columns) * columns + Math.floor(at / columns)]);
    if (rows !== columns || !values.every(mirrored)) {
      throw new InvalidInput("second moments are a symmetric matrix of the features");
    }
    const diagonal = values.filter((_, at) => at % (columns + 1) === 0);
    const trace = diagonal.reduce((sum, x) => sum + x, 0);
    if (diagonal.some((x) => x < 0) || trace > 1 + 1e-6) {
      throw new InvalidInput("features have length one at most, so their second moments sum to 1");
    }
    this.features = rows;
    this.inputDim = rows * wholeNumber(width, 1, MOST_CODES);
  }

  /** Moments of these features, by PrivUnit2 with the target "vector". */
  fits(encoder, randomizer) {
    if (encoder.form !== "moments" || encoder.features !== this.features) return false;
    const { kind } = randomizer.constructor;
    if (kind === "memoised-privunit2") return true;
    return kind === "privunit2" && randomizer.target === "vector" && randomizer.radius >= 1;
  }
}

/** The public shares of cells, and how many values all answers together have. */
class PairCells extends PairDecoder {
  constructor(tensors, prefix) {
    super();
    const [shares, values] = take(tensors, prefix, "shares", "values");
    checkPositive(asShift(shares));
    if (!(Math.abs(shares.values.reduce((sum, x) => sum + x, 0) - 1) <= 1e-8 + 1e-5)) {
      throw new InvalidInput("the public shares of cells sum to one");
    }
    this.features = shares.values.length;
    this.inputDim = this.features * wholeNumber(values, 1, MOST_VALUES);
  }

  /** Symbols of these cells. */
  fits(encoder, randomizer) {
    const same = encoder.form === "cells" && encoder.features === this.features;
    return same && super.fits(encoder, randomizer);
  }
}

/** Two symbols: a public model is wrong or right about a pair. */
class PairRight extends PairDecoder {
  constructor(tensors, prefix) {
    super();
    this.inputDim = wholeNumber(take(tensors, prefix, "symbols")[0], 2, 2);
  }

  /** Bits of a check. */
  fits(encoder, randomizer) {
    return encoder.form === "right" && super.fits(encoder, randomizer);
  }
}

/** The way back and the public moments, to estimate those of people with: it decodes no report. */
class SecondMoments extends PairDecoder {
  /** That of the encoder: the public mean. */
  priorMean = undefined;

  constructor(tensors, prefix) {
    super();
    const [back, centre, mean, second] = take(
      ...[tensors, prefix, "back", "centre", "mean", "second"],
    );
    const { columns: rank } = asMap(back, centre, 0);
    const { rows, columns, values } = asMap(second, mean, 0);
    if (rows !== rank || columns !== rank) {
      throw new InvalidInput(`public moments of ${rank} coordinates have other shapes`);
    }
    const near = (a, b) => Math.abs(a - b) <= 1e-9 + 1e-5 * Math.abs(b);
    const mirrored = (x, at) => near(x, values[(at % rank) * rank + Math.floor(at / rank)]);
    if (!values.every(mirrored) || values.some((x, at) => at % (rank + 1) === 0 && x < 0)) {
      throw new InvalidInput("second moments are a symmetric matrix with positive squares");
    }
    this.inputDim = (rank * (rank + 3)) / 2;
  }

  decode() {
    throw new BiasedDecoder(
      "a report of this release is about the squares and products of a vector's coordinates, so it " +
        "decodes to no vector: estimate the covariance of many people in Python",
    );
  }
}

/** The number of joint values of answers alone: their reports have shares. */
class AnswersAlone extends PairDecoder {
  constructor(tensors, prefix) {
    super();
    this.inputDim = wholeNumber(take(tensors, prefix, "symbols")[0], 2, MOST_VALUES);
  }

  decode() {
    throw new BiasedDecoder(
      "a report of this release is about private answers alone, so it decodes to no vector: " +
        "estimate shares in Python",
    );
  }
}

/** Return the one entry of a tensor, a whole number of the range, or throw. */
function wholeNumber({ shape, values }, low, high) {
  const single = shape.length === 1 && values.length === 1 && Number.isInteger(values[0]);
  if (!single || values[0] < low || values[0] > high) {
    throw new InvalidInput(`a decoder of pairs needs one whole number from ${low} to ${high}`);
  }
  return values[0];
}

/** Return the mean of rows, weighted by their shares. */
function weighted({ columns, values }, shares) {
  const mass = shares.reduce((sum, share) => sum + share, 0);
  const mean = new Float64Array(columns);
  values.forEach((x, i) => (mean[i % columns] += (shares[Math.trunc(i / columns)] / mass) * x));
  return mean;
}

function checkPositive(prior) {
  if (!prior.every((share) => share > 0)) {
    throw new InvalidInput("every codeword, point or cell must have a positive share");
  }
}

/** Kind → function that builds it from a file's tensors and the prefix of their names. */
export const DECODERS = new Map([
  ["linear", (...from) => new Linear(...from, true)],
  ["shrinkage", (...from) => new Linear(...from, false)],
  ["shift", (...from) => new Shift(...from)],
  ["network", (...from) => new NetworkDecoder(...from)],
  ["codeword", (...from) => new Codeword(...from)],
  ["posterior-codeword", (...from) => new PosteriorCodeword(...from)],
  ["posterior", (...from) => new Posterior(...from)],
  ["pair-moments", (...from) => new PairMoments(...from)],
  ["pair-cells", (...from) => new PairCells(...from)],
  ["pair-right", (...from) => new PairRight(...from)],
  ["answers", (...from) => new AnswersAlone(...from)],
  ["second-moments", (...from) => new SecondMoments(...from)],
]);
