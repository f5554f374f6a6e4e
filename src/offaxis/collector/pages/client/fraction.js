/** Exact fractions of BigInts, for reading, comparing and adding ε and δ. */

import { InvalidInput, shown } from "./errors.js";

const LARGEST_PART = 10n ** 95n;
const NUMBER = /^[+-]?(\d+\/0*[1-9]\d*|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)$/;

/** A fraction of BigInts in lowest terms, with a positive denominator. */
export class Fraction {
  constructor(numerator, denominator = 1n) {
    let [a, b] = [numerator < 0n ? -numerator : numerator, denominator];
    while (b) [a, b] = [b, a % b];
    this.numerator = numerator / a;
    this.denominator = denominator / a;
    Object.freeze(this);
  }

  /** Return −1, 0 or 1 if this is less than, equal to or greater than `other`. */
  compare(other) {
    const gap = this.numerator * other.denominator - other.numerator * this.denominator;
    return gap < 0n ? -1 : gap > 0n ? 1 : 0;
  }

  plus(other) {
    return new Fraction(
      this.numerator * other.denominator + other.numerator * this.denominator,
      this.denominator * other.denominator,
    );
  }

  times(other) {
    return new Fraction(
      this.numerator * other.numerator,
      this.denominator * other.denominator,
    );
  }

  /** Return the nearest float64 or a neighbour of it; for display and decoding only. */
  toNumber() {
    const smaller = bitLength(this.denominator) - bitLength(abs(this.numerator));
    const extra = 64n + BigInt(Math.max(0, smaller));
    return Number((this.numerator << extra) / this.denominator) / 2 ** Number(extra);
  }

  toString() {
    return this.denominator === 1n ? `${this.numerator}` : `${this.numerator}/${this.denominator}`;
  }
}

/** Read a number exactly; a float is read as its shortest decimal, so 0.1 is 1/10. */
export function exact(value, name) {
  if (value instanceof Fraction) return value;
  if (!["number", "bigint", "string"].includes(typeof value)) {
    throw new InvalidInput(`${name} must be a number, got ${name}=${shown(value)}`);
  }
  const text = String(value).trim();
  if (text.length > 200 || !NUMBER.test(text)) {
    throw new InvalidInput(`${name} must be a finite number, got ${name}=${shown(value)}`);
  }
  const number = text.includes("/") ? ratio(text) : decimal(text);
  if (abs(number.numerator) >= LARGEST_PART || number.denominator >= LARGEST_PART) {
    throw new InvalidInput(`${name} must be a fraction of numbers below 10**95`);
  }
  return number;
}

/** Read ε exactly: positive, from 1e-9 to 10000. */
export function exactEpsilon(value) {
  const epsilon = exact(value, "epsilon");
  const low = new Fraction(1n, 10n ** 9n);
  if (epsilon.compare(low) < 0 || epsilon.compare(new Fraction(10_000n)) > 0) {
    throw new InvalidInput(`epsilon must be between 1e-9 and 10000, got epsilon=${shown(value)}`);
  }
  return epsilon;
}

function ratio(text) {
  const [numerator, denominator] = text.replace("+", "").split("/");
  return new Fraction(BigInt(numerator), BigInt(denominator));
}

function decimal(text) {
  const [mantissa, exponent = "0"] = text.toLowerCase().split("e");
  const [whole, part = ""] = mantissa.replace(/[+-]/, "").split(".");
  const sign = mantissa.startsWith("-") ? -1n : 1n;
  const digits = sign * BigInt(whole + part);
  const shift = Number(exponent) - part.length;
  return shift < 0
    ? new Fraction(digits, 10n ** BigInt(-shift))
    : new Fraction(digits * 10n ** BigInt(shift));
}

const abs = (value) => (value < 0n ? -value : value);

/** Return the number of binary digits of a natural number. */
export const bitLength = (value) => (value ? value.toString(2).length : 0);
