/** Reading the untrusted parameters of a randomizer from a release file, checked and exact. */

import { LARGEST_DIM } from "./container.js";
import { InvalidInput, shown } from "./errors.js";
import { Fraction, exactEpsilon } from "./fraction.js";

const TYPES = { integer: "bigint", float: "number", text: "string" };

/** Return plain values, after checking that exactly these parameters exist with their types. */
export function readParameters(kind, values, types) {
  const names = Object.keys(types).sort();
  if ([...values.keys()].sort().join() !== names.join()) {
    throw new InvalidInput(`a ${kind} randomizer has parameters ${names.join(", ")}`);
  }
  const read = {};
  for (const [name, type] of Object.entries(types)) {
    const value = values.get(name);
    if (typeof value !== TYPES[type]) {
      throw new InvalidInput(`parameter ${name} of a ${kind} has a wrong type: ${shown(value)}`);
    }
    read[name] = type === "integer" ? Number(value) : value;
  }
  return read;
}

/** Return an integer if it is in the range, or throw. */
export function checkInteger(value, name, low, high) {
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    throw new InvalidInput(`${name} must be an integer from ${low} to ${high}, got ${name}=${value}`);
  }
  return value;
}

export function checkDim(dim) {
  return checkInteger(dim, "dim", 1, LARGEST_DIM);
}

export function checkRadius(radius) {
  if (!(radius >= 1e-100 && radius <= 1e100)) {
    throw new InvalidInput(`radius must be between 1e-100 and 1e100, got radius=${radius}`);
  }
  return radius;
}

/** Return ε as a fraction; it must be in canonical form and at most `largest`. */
export function checkEpsilon(text, kind, largest) {
  const epsilon = exactEpsilon(text);
  if (epsilon.toString() !== text) {
    throw new InvalidInput(`the parameters of the ${kind} randomizer are not in canonical form`);
  }
  if (epsilon.compare(new Fraction(BigInt(largest))) > 0) {
    throw new InvalidInput(`epsilon must be at most ${largest} for ${kind}, got epsilon=${text}`);
  }
  return epsilon;
}

/** Return a string if it is one of the allowed ones, or throw. */
export function checkWord(value, name, allowed) {
  if (!allowed.includes(value)) {
    throw new InvalidInput(`${name} must be one of ${allowed.join(", ")}, got ${shown(value)}`);
  }
  return value;
}
