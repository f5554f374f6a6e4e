/** Decoders: public maps from an observation to a vector, for display in a page. */

import { InvalidInput, Unsupported } from "./errors.js";
import { Network, add, asMap, asShift, multiply, take } from "./encoders.js";

const MOST_POINTS = 4096;

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

/** Return the mean of rows, weighted by their shares. */
function weighted({ columns, values }, shares) {
  const mass = shares.reduce((sum, share) => sum + share, 0);
  const mean = new Float64Array(columns);
  values.forEach((x, i) => (mean[i % columns] += (shares[Math.trunc(i / columns)] / mass) * x));
  return mean;
}

function checkPositive(prior) {
  if (!prior.every((share) => share > 0)) {
    throw new InvalidInput("every codeword or point must have a positive share");
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
]);
