/**
 * A reader learnt from reports of pairs: the table of public cells by answers, as Python's
 * offaxis.learn computes it (src/offaxis/learning/tables.py), from the same sums.
 */

const FOLDS = 5;
const CONVINCING = 3;
const NORMAL_975 = 1.959963984540054;
const TINY = 1e-300;

/** How often each symbol is named, in folds by position: all that a reader needs of the reports. */
export class Sums {
  /** Number of reports. */
  count = 0;
  /** How many symbols a report names. */
  named = 0;
  /** The entries of an observation of symbols that are not named and that are. */
  levels = [0, 0];

  constructor(symbols) {
    this.folds = Array.from({ length: FOLDS }, () => ({
      count: 0,
      named: new Float64Array(symbols),
    }));
  }

  /** Add the observation of one report; return the symbols that it names. */
  add(observed) {
    const fold = this.folds[this.count % FOLDS];
    const symbols = [];
    observed.forEach((entry, symbol) => {
      if (entry > 0) symbols.push(symbol);
    });
    for (const symbol of symbols) fold.named[symbol] += 1;
    if (!this.count) {
      this.named = symbols.length;
      this.levels = [Math.min(...observed), Math.max(...observed)];
    }
    fold.count += 1;
    this.count += 1;
    return symbols;
  }
}

/** Estimated shares of symbols, with variances (src/offaxis/decoding/shares.py). */
class Shares {
  #scale;
  #together;

  constructor(folds, { named: d, levels: [low, high] }) {
    const k = folds[0].named.length;
    this.count = sum(folds.map(({ count }) => count));
    this.named = Float64Array.from({ length: k }, (_, symbol) =>
      sum(folds.map(({ named }) => named[symbol])) / this.count);
    this.estimate = this.named.map((share) => low * (1 - share) + high * share);
    this.#scale = high - low;
    const own = (1 - low) / this.#scale;
    const both = own * (d - 1) * (d - 2) + (1 - own) * d * (d - 1);
    const neither = both / Math.max((k - 1) * (k - 2), 1);
    this.#together = [(own * (d - 1)) / (k - 1), neither];
  }

  /** The squared standard errors. */
  get noise() {
    const scale = this.#scale ** 2 / (this.count - 1);
    return this.named.map((share) => scale * share * (1 - share));
  }

  /** Return the variance of the sum of the shares with weight 1; the others have 0. */
  variance(weights) {
    const [one, none] = this.#together;
    const total = sum(weights);
    const squares = dot(weights, weights);
    const squared = weights.map((weight) => weight * weight);
    const apart =
      none * (total ** 2 - squares) +
      2 * (one - none) * (total * dot(weights, this.estimate) - dot(squared, this.estimate));
    const spread = dot(squared, this.named) + apart - dot(weights, this.named) ** 2;
    return (Math.max(spread, 0) * this.#scale ** 2) / (this.count - 1);
  }
}

/** The answer in each cell, from at least two reports. */
export class Reader {
  #sums;
  #all;

  /** `shares` are the public shares of the cells. */
  constructor(sums, shares) {
    this.#sums = sums;
    this.#all = new Shares(sums.folds, sums);
    this.cells = shares.length;
    this.classes = this.#all.named.length / shares.length;
    this.#learn(shares);
  }

  /** Estimate the probabilities of the answers in each cell, shrunk by what noise explains. */
  #learn(shares) {
    const { cells, classes } = this;
    const rows = this.#rows(this.#all.estimate);
    const everyone = Array.from({ length: classes }, (_, j) => sum(rows.map((row) => row[j])));
    const columns = everyone.map((_, j) =>
      this.#all.variance(Float64Array.from({ length: cells * classes }, (_, symbol) =>
        Number(symbol % classes === j))));
    const overall = shrunk(everyone.map((share) => share - 1 / classes), sum(columns));
    const noise = this.#rows(this.#all.noise);
    const apart = rows.map((row, cell) => row.map((share, j) => share / shares[cell] - everyone[j]));
    const explained = sum(noise.map((row, cell) => sum(row) / shares[cell] ** 2));
    const own = this.#rows(shrunk(apart.flatMap((row) => [...row]), explained));
    /** Probabilities of the answers, one array per cell. */
    this.table = own.map((row) => projected(row.map((part, j) => overall[j] + 1 / classes + part)));
  }

  #rows(flat) {
    return Array.from({ length: this.cells }, (_, cell) =>
      Array.from(flat.slice(cell * this.classes, (cell + 1) * this.classes)));
  }

  /** Return the answer for a vector in a cell. */
  answer(cell) {
    return largest(this.table[cell]);
  }

  /** Whether the answers differ from equal ones by more than noise explains: three deviations of χ². */
  get evidence() {
    const noise = this.#rows(this.#all.noise);
    const distance = sum(this.#rows(this.#all.estimate).map((row, cell) => {
      const mean = sum(row) / this.classes;
      return sum(row.map((share, j) => (share - mean) ** 2 / Math.max(noise[cell][j], TINY)));
    }));
    const freedom = this.cells * (this.classes - 1);
    return distance > freedom + CONVINCING * Math.sqrt(2 * freedom);
  }

  /**
   * Return how often the reader is expected to be right, from the reports alone: each fold judges
   * the answers that the others name. Null if there are too few reports.
   */
  expectedAccuracy() {
    const { folds, count: n } = this.#sums;
    const judges = folds.filter(({ count }) => count > 1 && count < n).map((fold) => {
      const own = new Shares([fold], this.#sums);
      const others = this.#all.estimate.map((share, symbol) =>
        (n * share - fold.count * own.estimate[symbol]) / (n - fold.count));
      return { count: fold.count, own, named: this.#named(others) };
    });
    if (!judges.length) return null;
    const used = sum(judges.map(({ count }) => count));
    const settled = judges[0].named.map((_, i) => Math.min(...judges.map(({ named }) => named[i])));
    let [estimate, variance, together] = [0, 0, 0];
    for (const { count, own, named } of judges) {
      const weight = count / used;
      estimate += weight * dot(own.estimate, named);
      variance += weight ** 2 * own.variance(settled);
      together += weight * Math.sqrt(own.variance(named.map((entry, i) => entry - settled[i])));
    }
    const reach = NORMAL_975 * (Math.sqrt(variance) + together);
    const within = (share) => Math.min(1, Math.max(0, share));
    return { estimate: within(estimate), low: within(estimate - reach), high: within(estimate + reach) };
  }

  /** Return 1 for the largest entry of every row of a flat table, 0 for the others. */
  #named(flat) {
    const mask = new Float64Array(flat.length);
    this.#rows(flat).forEach((row, cell) => (mask[cell * this.classes + largest(row)] = 1));
    return mask;
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);
const largest = (row) => row.indexOf(Math.max(...row));

/** Shrink numbers towards zero by the share of their squared length that noise explains. */
function shrunk(apart, noise) {
  const factor = Math.max(0, 1 - noise / Math.max(dot(apart, apart), TINY));
  return apart.map((value) => factor * value);
}

/** Return the nearest probabilities to a row. */
function projected(row) {
  let [total, excess] = [0, 0];
  [...row].sort((a, b) => b - a).forEach((value, i) => {
    total += value;
    if (value > (total - 1) / (i + 1)) excess = (total - 1) / (i + 1);
  });
  const positive = row.map((value) => Math.max(value - excess, 0));
  const whole = sum(positive);
  return positive.map((value) => value / whole);
}
