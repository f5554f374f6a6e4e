/**
 * Encoders: public maps from a private vector to the input of a randomizer, numbers or a symbol.
 *
 * They provide no privacy, but must be total: every finite vector, tiny or huge, has an encoding. An
 * encoder of pairs takes a row, the vector and then one number per answer (asked.js).
 */

import { NO_ANSWER, isAsked, isCounted, isMissing } from "./asked.js";
import { InvalidInput, InvalidRelease } from "./errors.js";
import { cumulative } from "./normal.js";

const LARGEST_ENTRY = 1e100;
const LARGEST_INPUT = 2 ** 500;
const DEEPEST = 8;
const MOST_SYMBOLS = 1 << 16;

const POINTWISE = {
  identity: (x) => x,
  relu: (x) => Math.max(x, 0),
  tanh: Math.tanh,
  logistic: (x) => 1 / (1 + Math.exp(-x)),
  gelu: (x) => x * cumulative(x),
  silu: (x) => x / (1 + Math.exp(-x)),
  elu: (x) => (x > 0 ? x : Math.expm1(x)),
};

/** x / sqrt(mean(x²) + 1); divided by the largest entry first, so that no square overflows. */
function normalise(x) {
  const peak = x.reduce((most, value) => Math.max(most, Math.abs(value)), 1);
  const scaled = x.map((value) => value / peak);
  const mean = scaled.reduce((sum, value) => sum + value * value, 0) / x.length;
  const root = Math.sqrt(mean + (1 / peak) ** 2);
  return scaled.map((value) => value / root);
}

/** Name → function of a layer's values. */
const ACTIVATIONS = new Map([
  ...Object.entries(POINTWISE).map(([name, apply]) => [name, (values) => values.map(apply)]),
  ["normalise", normalise],
]);

/** Shrink a vector with entries above 2**500 to that size: only its direction matters. */
function shrinkHuge(z) {
  const peak = z.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return peak <= LARGEST_INPUT ? z : z.map((x) => (x / peak) * LARGEST_INPUT);
}

/** Remove the tensors of a part from those of a file and return them, checked to be bounded. */
export function take(tensors, prefix, ...names) {
  return names.map((name) => {
    const full = `${prefix}.${name}`;
    const tensor = tensors.get(full);
    if (!tensor) throw new InvalidRelease(`the file has no tensor '${full}'`);
    tensors.delete(full);
    if (!tensor.values.every((x) => Math.abs(x) <= LARGEST_ENTRY)) {
      throw new InvalidInput(`a map must be finite with entries up to ${LARGEST_ENTRY}`);
    }
    return tensor;
  });
}

/** Return the values of a one-dimensional tensor, or throw. */
export function asShift({ shape, values }) {
  if (shape.length !== 1 || !values.length) {
    throw new InvalidInput(`a shift must be a vector (m,), got shape (${shape})`);
  }
  return values;
}

/** Return {rows, columns, values} of a matrix whose axis `axis` has the length of a shift. */
export function asMap(matrix, shift, axis) {
  const { shape, values } = matrix;
  if (shape.length !== 2 || !values.length || asShift(shift).length !== shape[axis]) {
    throw new InvalidInput(`a map (${shape}) and a shift (${shift.shape}) do not fit`);
  }
  return { rows: shape[0], columns: shape[1], values };
}

/** Return A x. */
export function multiply({ rows, columns, values }, x) {
  const out = new Float64Array(rows);
  for (let i = 0, at = 0; i < rows; i++) {
    let sum = 0;
    for (let j = 0; j < columns; j++) sum += values[at++] * x[j];
    out[i] = sum;
  }
  return out;
}

export const add = (x, y) => x.map((value, i) => value + y[i]);
const subtract = (x, y) => x.map((value, i) => value - y[i]);

function argmax(scores) {
  let best = 0;
  scores.forEach((score, i) => {
    if (score > scores[best]) best = i;
  });
  return best;
}

/** w = A (z − c). */
class Affine {
  constructor(tensors, prefix) {
    const [matrix, centre] = take(tensors, prefix, "matrix", "centre");
    this.matrix = asMap(matrix, centre, 1);
    this.centre = centre.values;
  }

  get inputDim() {
    return this.matrix.columns;
  }

  get outputDim() {
    return this.matrix.rows;
  }

  encode(z) {
    return multiply(this.matrix, subtract(shrinkHuge(z), this.centre));
  }
}

/** w = z − c. */
class Shift {
  constructor(tensors, prefix) {
    this.centre = asShift(take(tensors, prefix, "centre")[0]);
  }

  get inputDim() {
    return this.centre.length;
  }

  get outputDim() {
    return this.centre.length;
  }

  encode(z) {
    return subtract(shrinkHuge(z), this.centre);
  }
}

/** w_i = clip((A (z − c))_i, ±h_i). */
class Box extends Affine {
  constructor(tensors, prefix) {
    super(tensors, prefix);
    this.limits = asShift(take(tensors, prefix, "limits")[0]);
    if (this.limits.length !== this.outputDim || !this.limits.every((limit) => limit > 0)) {
      throw new InvalidInput(`a box needs ${this.outputDim} positive half widths`);
    }
  }

  encode(z) {
    return super.encode(z).map((w, i) => Math.max(-this.limits[i], Math.min(this.limits[i], w)));
  }
}

/** The index of the largest entry of A (z − c) + b, the first of ties. */
class Argmax extends Affine {
  givesSymbols = true;

  constructor(tensors, prefix) {
    super(tensors, prefix);
    this.bias = asShift(take(tensors, prefix, "bias")[0]);
    if (this.bias.length !== this.outputDim) {
      throw new InvalidInput(`${this.outputDim} scores and a bias of ${this.bias.length} do not fit`);
    }
  }

  encode(z) {
    return argmax(add(super.encode(z), this.bias));
  }
}

/** Affine layers with activations between them; every layer's values stay within ±1e100. */
export class Network {
  constructor(tensors, prefix, activations = ["relu"]) {
    const depth = [...tensors.keys()].filter((name) => name.startsWith(`${prefix}.weight.`)).length;
    if (depth < 1 || depth > DEEPEST) {
      throw new InvalidInput(`a network has 1 to ${DEEPEST} layers, got ${depth}`);
    }
    this.layers = Array.from({ length: depth }, (_, i) => {
      const [weight, bias] = take(tensors, prefix, `weight.${i}`, `bias.${i}`);
      return { weight: asMap(weight, bias, 0), bias: bias.values };
    });
    for (let i = 1; i < depth; i++) {
      if (this.layers[i].weight.columns !== this.layers[i - 1].weight.rows) {
        throw new InvalidInput("the layers of a network do not fit together");
      }
    }
    if (activations.length > 1 && activations.length !== depth - 1) {
      throw new InvalidInput(
        `a network with ${depth - 1} hidden layers needs one activation, or one per hidden layer`,
      );
    }
    this.activations = activations.map((name) => ACTIVATIONS.get(name));
  }

  get inputDim() {
    return this.layers[0].weight.columns;
  }

  get outputDim() {
    return this.layers.at(-1).weight.rows;
  }

  apply(x) {
    let values = x;
    this.layers.forEach(({ weight, bias }, depth) => {
      values = add(multiply(weight, clamped(values)), bias);
      if (depth < this.layers.length - 1) {
        values = this.activations[depth % this.activations.length](values);
      }
    });
    return clamped(values);
  }

  encode(z) {
    return this.apply(z);
  }
}

const clamped = (x) => x.map((value) => Math.max(-LARGEST_ENTRY, Math.min(LARGEST_ENTRY, value)));

/** The answer of a classifier: the index of a network's largest output, the first of ties. */
class Answer extends Network {
  givesSymbols = true;

  encode(z) {
    return argmax(this.apply(z));
  }
}

/** The answer of a model that the release does not contain: the page reports the answer itself. */
class ModelAnswer {
  givesSymbols = true;

  constructor(tensors, prefix) {
    const [symbols, centre] = take(tensors, prefix, "symbols", "centre").map(asShift);
    const used = [...new Set(symbols)].sort((a, b) => a - b);
    if (used.length < 2 || used.some((symbol, i) => symbol !== i)) {
      throw new InvalidInput("the symbols of the answers must be 0, 1, … without a gap");
    }
    this.symbols = symbols;
    this.centre = centre;
    this.outputDim = used.length;
  }

  get inputDim() {
    return this.centre.length;
  }

  encode() {
    throw new InvalidInput(
      "this release reports the answer of a model that its file does not contain: report an " +
        "answer with release.privatizeAnswer(answer)",
    );
  }
}

/** Second moments of one person: u = (svec(w wᵀ − h I), a w), w = A (z − c) clipped to ‖w‖ <= R. */
class SecondMoments extends Affine {
  constructor(tensors, prefix) {
    super(tensors, prefix);
    const sizes = asShift(take(tensors, prefix, "sizes")[0]);
    const [radius, height, weight] = sizes;
    if (sizes.length !== 3 || !(radius >= 1e-20 && radius <= 1e20)) {
      throw new InvalidInput("second moments need a radius, a height and a weight of the mean");
    }
    if (!(height >= 0 && height <= radius ** 2 && weight > 0 && weight <= radius)) {
      throw new InvalidInput("the height or the weight of the mean is out of range");
    }
    Object.assign(this, { radius, height, weight });
  }

  get outputDim() {
    const { rows } = this.matrix;
    return (rows * (rows + 3)) / 2;
  }

  /** Return the coordinates of a vector, clipped: first to the box, so that no square overflows. */
  coordinates(z) {
    const { radius } = this;
    let w = super.encode(z);
    const peak = w.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    if (peak > radius) w = w.map((x) => (x / peak) * radius);
    const length = Math.sqrt(w.reduce((sum, x) => sum + x * x, 0));
    const share = radius / Math.max(length, radius);
    return w.map((x) => x * share);
  }

  encode(z) {
    const w = this.coordinates(z);
    const out = new Float64Array(this.outputDim);
    let at = 0;
    for (let i = 0; i < w.length; i++) {
      out[at++] = w[i] * w[i] - this.height;
      for (let j = i + 1; j < w.length; j++) out[at++] = w[i] * w[j] * Math.SQRT2;
    }
    for (const x of w) out[at++] = this.weight * x;
    return out;
  }
}

// ---- Pairs of a vector and private answers

/** Read the tensor of what is asked: a list of {classes, low, high, optional}, all of them valid. */
function takeAsked(tensors, prefix, isValid) {
  const { shape, values } = take(tensors, prefix, "asked")[0];
  const rows = Array.from({ length: shape[0] }, (_, i) => {
    const [classes, low, high, optional] = values.slice(4 * i, 4 * i + 4);
    return { classes, low, high, optional };
  });
  if (shape.length !== 2 || shape[1] !== 4 || !rows.length || !rows.every(isValid)) {
    throw new InvalidInput("the answers that an encoder asks are not in a known form");
  }
  return rows;
}

/** Features of a vector by a public network, joined with the person's answers. */
class Pair extends Network {
  constructor(tensors, prefix, activations) {
    super(tensors, prefix, activations);
    const rows = takeAsked(tensors, prefix, isAsked);
    // A single row with one class asks nothing.
    const nothing = rows.some(({ classes }) => classes === 1);
    if (nothing && rows.length > 1) {
      throw new InvalidInput("an encoder that asks nothing asks nothing else");
    }
    this.questions = nothing ? [] : rows;
  }

  /** Dimension of the vector alone. */
  get vectorDim() {
    return super.inputDim;
  }

  /** Dimension of a row: the vector and the answers. */
  get inputDim() {
    return this.vectorDim + this.questions.length;
  }

  get features() {
    return super.outputDim;
  }

  /** The row of somebody without a usable vector or answer. */
  get blankRow() {
    return new Float64Array(this.inputDim).fill(NO_ANSWER, this.vectorDim);
  }

  /** Return the features of a row, and the numbers of its answers. */
  split(row) {
    return [this.apply(row.slice(0, this.vectorDim)), [...row.slice(this.vectorDim)]];
  }
}

/** Return the class that a number of a row stands for; null if it is none. */
function classOf(entry, classes) {
  return entry > -0.5 && entry < classes - 0.5 ? Math.floor(entry + 0.5) : null;
}

/** Return the corner of a regular simplex of k corners in k − 1 dimensions; null is its centre. */
function corner(own, classes) {
  return Float64Array.from({ length: classes - 1 }, (_, column) => {
    const i = column + 1;
    const scale = Math.sqrt(classes / ((classes - 1) * i * (i + 1)));
    if (own === null || own > i) return 0;
    return own < i ? scale : -i * scale;
  });
}

/** u = (a(y_1) ⊗ x, …, a(y_q) ⊗ x)/√q: the cross moments of one person. */
class Moments extends Pair {
  form = "moments";
  get outputDim() {
    if (!this.questions.length) return this.features;
    const widths = this.questions.map(({ classes }) => Math.max(1, classes - 1));
    return this.features * widths.reduce((sum, width) => sum + width);
  }

  encode(row) {
    const [x, answers] = this.split(row);
    if (!answers.length) return x;
    const root = Math.sqrt(answers.length);
    const moments = new Float64Array(this.outputDim);
    let at = 0;
    answers.forEach((entry, i) => {
      for (const code of this.#codeOf(entry, this.questions[i])) {
        const share = code / root;
        for (const feature of x) moments[at++] = share * feature;
      }
    });
    return moments;
  }

  #codeOf(entry, { classes, low, high }) {
    if (classes) return corner(classOf(entry, classes), classes);
    const scaled = Math.max(-1, Math.min(1, 2 * ((entry - low) / (high - low)) - 1));
    return [isMissing(entry) ? 0 : scaled];
  }
}

/** The symbol (argmax_j x_j, y_1, …, y_q) as one number; an optional answer has the value "none". */
class Cells extends Pair {
  form = "cells";
  givesSymbols = true;

  constructor(tensors, prefix, activations) {
    super(tensors, prefix, activations);
    if (this.questions.some(({ classes }) => classes === 0)) {
      throw new InvalidInput("cells take classes, not numbers");
    }
    if (!(this.outputDim >= 2 && this.outputDim <= MOST_SYMBOLS)) {
      throw new InvalidInput(`cells and answers give 2 to ${MOST_SYMBOLS} symbols`);
    }
  }

  get outputDim() {
    const values = ({ classes, optional }) => classes + optional;
    return this.questions.reduce((product, question) => product * values(question), this.features);
  }

  encode(row) {
    const [x, answers] = this.split(row);
    return answers.reduce((symbol, entry, i) => {
      const { classes, optional } = this.questions[i];
      // A mandatory answer that is missing counts as its first class, so that the encoder is total.
      const own = classOf(entry, classes) ?? (optional ? classes : 0);
      return symbol * (classes + optional) + own;
    }, argmax(x));
  }
}

/** The symbol 1 if the network is right about the pair, otherwise 0. */
class Right extends Pair {
  form = "right";
  givesSymbols = true;

  constructor(tensors, prefix, activations) {
    super(tensors, prefix, activations);
    if (this.questions.length !== 1 || this.questions[0].optional) {
      throw new InvalidInput("a model is checked on one answer that everybody has");
    }
    if (this.features !== (this.questions[0].classes || 2)) {
      throw new InvalidInput(`a model with ${this.features} outputs does not give this answer`);
    }
  }

  get outputDim() {
    return 2;
  }

  encode(row) {
    const [x, [entry]] = this.split(row);
    const { classes } = this.questions[0];
    if (classes) return classOf(entry, classes) === argmax(x) ? 1 : 0;
    return x[0] <= entry && entry <= x[1] ? 1 : 0;
  }
}

/** The symbol (y_1, …, y_q) of answers alone; a number counts as its bin. */
class AnswersAlone {
  givesSymbols = true;

  constructor(tensors, prefix) {
    this.questions = takeAsked(tensors, prefix, isCounted);
    if (!(this.outputDim >= 2 && this.outputDim <= MOST_SYMBOLS)) {
      throw new InvalidInput(`answers have 2 to ${MOST_SYMBOLS} joint values`);
    }
  }

  get inputDim() {
    return this.questions.length;
  }

  get outputDim() {
    return this.questions.reduce((product, { classes, optional }) => product * (classes + optional), 1);
  }

  /** The row of somebody without an answer. */
  get blankRow() {
    return new Float64Array(this.inputDim).fill(NO_ANSWER);
  }

  encode(row) {
    return [...row].reduce((symbol, entry, i) => {
      const { classes, low, high, optional } = this.questions[i];
      const own = low < high ? binOf(entry, classes, low, high) : classOf(entry, classes);
      // A mandatory answer that is missing counts as its first value, so that the encoder is total.
      return symbol * (classes + optional) + (own ?? (optional ? classes : 0));
    }, 0);
  }
}

/** Return the bin of a number of a row; null if it is none. */
function binOf(entry, bins, low, high) {
  if (isMissing(entry)) return null;
  const clipped = Math.min(Math.max(entry, low), high);
  return Math.min(Math.floor(((clipped - low) / (high - low)) * bins), bins - 1);
}

const MAPS = new Map([
  ["answers", AnswersAlone],
  ["affine", Affine],
  ["shift", Shift],
  ["box", Box],
  ["argmax", Argmax],
  ["network", Network],
  ["model-answer", ModelAnswer],
  ["second-moments", SecondMoments],
]);

/** What an encoder reports of a network's outputs, by the last word of its kind. */
const FORMS = new Map([
  ["argmax", Answer],
  ["moments", Moments],
  ["cells", Cells],
  ["right", Right],
]);

/**
 * Return the form and the activations that a kind names, "network-relu-argmax" or
 * "network-relu+tanh-cells".
 *
 * Null for any other word. Equal activations are written once, so a list of equal ones is another word.
 */
function formOf(kind) {
  const [, list = "", form] = /^network-([a-z+]+)-([a-z]+)$/.exec(kind) ?? [];
  const names = list.split("+");
  const known = names.every((name) => ACTIVATIONS.has(name)) && FORMS.has(form);
  const written = names.length === 1 || (names.length < DEEPEST && new Set(names).size > 1);
  return known && written ? [FORMS.get(form), names] : null;
}

/** Kind → function that builds it from a file's tensors and the prefix of their names. */
export const ENCODERS = {
  get(kind) {
    const Kind = MAPS.get(kind);
    if (Kind) return (tensors, prefix) => new Kind(tensors, prefix);
    const [Form, names] = formOf(kind) ?? [];
    return Form && ((tensors, prefix) => new Form(tensors, prefix, names));
  },
};
