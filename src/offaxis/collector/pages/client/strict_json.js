/**
 * Strict JSON for release files and rounds: one canonical form to write, and limits for reading.
 *
 * Objects are read into Maps, so that no key can reach an object's prototype. Integers become
 * BigInts and all other numbers Numbers, because the canonical form distinguishes 1 and 1.0.
 */

const MOST_CONTAINERS = 100;
const MOST_TOKENS = 2000;
const LONGEST_NUMBER = 40;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const WORDS = [["true", true], ["false", false], ["null", null]];

/** Read untrusted JSON; throw a SyntaxError if it is invalid, repeats a key, or is too large. */
export function parseJson(text) {
  return new Reader(text).read();
}

class Reader {
  #text;
  #at = 0;
  #containers = 0;
  #tokens = 0;

  constructor(text) {
    this.#text = text;
  }

  read() {
    this.#space();
    const value = this.#value();
    this.#space();
    if (this.#at < this.#text.length) throw new SyntaxError("unexpected text after the value");
    return value;
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match) this.#at = pattern.lastIndex;
    return match;
  }

  #space() {
    this.#match(SPACE);
  }

  #take(character) {
    const matches = this.#text[this.#at] === character;
    if (matches) this.#at += 1;
    return matches;
  }

  #expect(character) {
    if (!this.#take(character)) throw new SyntaxError(`missing ${character}`);
  }

  #count(containers) {
    this.#containers += containers;
    this.#tokens += 1;
    if (this.#containers > MOST_CONTAINERS || this.#tokens > MOST_TOKENS) {
      throw new SyntaxError("too many containers or values");
    }
  }

  #value() {
    if (this.#take("{")) return this.#object();
    if (this.#take("[")) return this.#list();
    if (this.#take('"')) return this.#string();
    for (const [word, value] of WORDS) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#number();
  }

  #object() {
    this.#count(1);
    const result = new Map();
    this.#space();
    if (this.#take("}")) return result;
    do {
      this.#space();
      this.#expect('"');
      const key = this.#string();
      if (result.has(key)) throw new SyntaxError("duplicate key");
      this.#space();
      this.#expect(":");
      this.#space();
      result.set(key, this.#value());
      this.#space();
    } while (this.#comma());
    this.#expect("}");
    return result;
  }

  #list() {
    this.#count(1);
    const result = [];
    this.#space();
    if (this.#take("]")) return result;
    do {
      this.#space();
      result.push(this.#value());
      this.#space();
    } while (this.#comma());
    this.#expect("]");
    return result;
  }

  #comma() {
    const matches = this.#take(",");
    if (matches) this.#count(0);
    return matches;
  }

  #string() {
    this.#count(0);
    const parts = [];
    for (;;) {
      parts.push(this.#match(PLAIN)[0]);
      if (this.#take('"')) return parts.join("");
      this.#expect("\\");
      parts.push(this.#escape());
    }
  }

  #escape() {
    const letter = this.#text[this.#at++];
    if (Object.hasOwn(ESCAPES, letter ?? "")) return ESCAPES[letter];
    const digits = this.#text.slice(this.#at, this.#at + 4);
    if (letter !== "u" || !/^[0-9a-fA-F]{4}$/.test(digits)) throw new SyntaxError("invalid escape");
    this.#at += 4;
    return String.fromCharCode(parseInt(digits, 16));
  }

  #number() {
    const match = this.#match(NUMBER);
    if (!match) throw new SyntaxError("missing value");
    const [digits, rest] = match;
    if (digits.length > LONGEST_NUMBER) {
      throw new SyntaxError(`a number has ${digits.length} characters`);
    }
    return rest ? Number(digits) : BigInt(digits);
  }
}

/** Write what parseJson reads in the canonical form that is hashed: sorted keys, compact, ASCII. */
export function canonicalJson(value) {
  if (value instanceof Map) {
    const keys = [...value.keys()].sort(byCodePoint);
    return `{${keys.map((key) => `${quoted(key)}:${canonicalJson(value.get(key))}`).join(",")}}`;
  }
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "string") return quoted(value);
  if (typeof value === "number") return floatText(value);
  return String(value); // a BigInt, true, false or null
}

function byCodePoint(one, other) {
  const [a, b] = [Array.from(one), Array.from(other)];
  const i = a.findIndex((character, index) => character !== b[index]);
  if (i < 0) return a.length - b.length;
  return i < b.length ? a[i].codePointAt(0) - b[i].codePointAt(0) : 1;
}

function quoted(text) {
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, (unit) => {
    return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** Write a float as Python does: the shortest digits, with a decimal point or an exponent. */
function floatText(value) {
  if (!Number.isFinite(value)) throw new SyntaxError("a number is not finite");
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa, exponentText] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  const plain = value.toString(); // has no exponent from 1e-6 to 1e21
  return plain.includes(".") ? plain : `${plain}.0`;
}
