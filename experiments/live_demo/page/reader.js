/**
 * A reader learnt from reports of pairs: the table of public cells by answers, as Python's
 * offaxis.learn computes it (src/offaxis/learning/tables.py), from the same sums.
 */

const FOLDS = 5;
const CONVINCING = 3;
const NORMAL_975 = 1.959963984540054;
const SIZES = Array.from({ length: 81 }, (_, i) => 10 ** (-3 + i / 10));

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
    const fold = this.folds[foldOf(this.count)];
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
  #levels;

  constructor(folds, { named: d, levels: [low, high] }) {
    const k = folds[0].named.length;
    this.count = sum(folds.map(({ count }) => count));
    this.named = Float64Array.from({ length: k }, (_, symbol) =>
      sum(folds.map(({ named }) => named[symbol])) / this.count);
    this.estimate = this.named.map((share) => low * (1 - share) + high * share);
    this.#scale = high - low;
    this.#levels = [low, high];
    const own = (1 - low) / this.#scale;
    const both = own * (d - 1) * (d - 2) + (1 - own) * d * (d - 1);
    const neither = both / Math.max((k - 1) * (k - 2), 1);
    this.#together = [(own * (d - 1)) / (k - 1), neither];
  }

  /** The squared standard error of a symbol that nobody has: none varies less. */
  get least() {
    const [low, high] = this.#levels;
    return (-low * high) / this.count;
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

  /** Estimate the probabilities of the answers in each cell: posterior means. */
  #learn(shares) {
    const { classes } = this;
    const table = this.#rows(this.#all.estimate);
    const everyone = Array.from({ length: classes }, (_, j) => sum(table.map((row) => row[j])));
    const noise = this.#rows(this.#all.noise).map((row) =>
      row.map((variance) => Math.max(variance, this.#all.least)));
    const whole = sum(noise.map(sum));
    const [overall] = shrunk([everyone.map((share) => share - 1 / classes)], [whole / classes]);
    const apart = table.map((row, cell) => row.map((share, j) => share / shares[cell] - everyone[j]));
    const own = shrunk(apart, noise.map((row, cell) => sum(row) / classes / shares[cell] ** 2));
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
    const { least, noise, estimate, count } = this.#all;
    const [rows, variances] = [this.#rows(estimate), this.#rows(noise)];
    const distance = sum(rows.map((row, cell) => {
      const mean = sum(row) / this.classes;
      return sum(row.map((share, j) => (share - mean) ** 2 / Math.max(variances[cell][j], least)));
    }));
    const freedom = this.cells * (this.classes - 1);
    if (count < freedom) return false;
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

/** Return the fold of a position: every five reports one each, by turns without a period. */
function foldOf(position) {
  const turn = (Math.imul(Math.floor(position / FOLDS), 0x9e3779b1) >>> 0) >>> 16;
  return (position + turn) % FOLDS;
}

/** Return posterior means of rows N(0, τ²I) seen with noise, averaged over τ² (tables.py). */
function shrunk(rows, variances) {
  const largest = Math.max(...variances);
  const taus = [0, ...SIZES.map((size) => size * largest)];
  const squares = rows.map((row) => dot(row, row));
  const evidence = taus.map((tau, i) => {
    const terms = variances.map((variance, c) =>
      squares[c] / (tau + variance) + rows[c].length * Math.log(tau + variance));
    return Math.log(i ? 0.5 / SIZES.length : 0.5) - sum(terms) / 2;
  });
  const peak = Math.max(...evidence);
  const weights = evidence.map((value) => Math.exp(value - peak));
  const whole = sum(weights);
  return rows.map((row, c) => {
    const kept = sum(weights.map((weight, i) => (weight * taus[i]) / (taus[i] + variances[c])));
    return row.map((value) => (value * kept) / whole);
  });
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
