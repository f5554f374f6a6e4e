/**
 * Encoders: public maps from a private vector to the input of a randomizer, numbers or a symbol.
 *
 * They provide no privacy, but must be total: every finite vector, tiny or huge, has an encoding.
 */

import { InvalidInput, InvalidRelease } from "./errors.js";
import { cumulative } from "./normal.js";

const LARGEST_ENTRY = 1e100;
const LARGEST_INPUT = 2 ** 500;
const DEEPEST = 8;

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

const MAPS = new Map([
  ["affine", Affine],
  ["shift", Shift],
  ["box", Box],
  ["argmax", Argmax],
  ["network", Network],
  ["model-answer", ModelAnswer],
]);

/**
 * Return the activations that a kind names, "network-relu-argmax" or "network-relu+tanh-argmax".
 *
 * Null for any other word. Equal activations are written once, so a list of equal ones is another word.
 */
function activationsOf(kind) {
  const names = /^network-([a-z+]+)-argmax$/.exec(kind)?.[1].split("+") ?? [];
  const known = names.length > 0 && names.every((name) => ACTIVATIONS.has(name));
  const written = names.length === 1 || (names.length < DEEPEST && new Set(names).size > 1);
  return known && written ? names : null;
}

/** Kind → function that builds it from a file's tensors and the prefix of their names. */
export const ENCODERS = {
  get(kind) {
    const Kind = MAPS.get(kind);
    if (Kind) return (tensors, prefix) => new Kind(tensors, prefix);
    const activations = activationsOf(kind);
    return activations ? (tensors, prefix) => new Answer(tensors, prefix, activations) : undefined;
  },
};
