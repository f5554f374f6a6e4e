/** The parameters of a randomizer as a release file gives them: untrusted, checked, exact. */

import { LARGEST_DIM } from "./container.js";
import { InvalidInput, shown } from "./errors.js";
import { Fraction, exactEpsilon } from "./fraction.js";

const TYPES = { integer: "bigint", float: "number", text: "string" };

/** Return plain values, after checking that exactly these are there, each of its type. */
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

/** Return an integer of a range, or say what is wrong with it. */
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
    throw new InvalidInput(`radius must lie between 1e-100 and 1e100, got radius=${radius}`);
  }
  return radius;
}

/** Return ε as a fraction; only its one form is read, and only up to what a randomizer takes. */
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

/** Return one of a few words. */
export function checkWord(value, name, known) {
  if (!known.includes(value)) {
    throw new InvalidInput(`${name} must be one of ${known.join(", ")}, got ${shown(value)}`);
  }
  return value;
}
