/** The manifest of a release file, read by a strict schema; `answers` and `asked` are optional. */

import { LARGEST_DIM } from "./container.js";
import { InvalidRelease, shown } from "./errors.js";
import { canonicalJson, parseJson } from "./strict_json.js";

const FORMAT = "offaxis-release";
const VERSION = 1n;
const LONGEST_WORD = 200;
const LONGEST_STATEMENT = 10_000;

const natural = (low, high) => (value) =>
  typeof value === "bigint" && value >= low && (high === undefined || value <= high);
const text = (low, high) => (value) => {
  if (typeof value !== "string" || /[\ud800-\udfff]/u.test(value)) return false;
  // In code points, as in Python.
  const length = value.length <= 2 * high ? Array.from(value).length : Infinity;
  return low <= length && length <= high;
};
const pattern = (regex) => (value) => typeof value === "string" && regex.test(value);
const finite = (value) => typeof value === "number" && Number.isFinite(value);

const word = text(1, LONGEST_WORD);
const sha256 = pattern(/^[0-9a-f]{64}$/);
const fraction = (value) => word(value) && /^[0-9]+(\/[0-9]+)?$/.test(value);
const dim = natural(1n, BigInt(LARGEST_DIM));
const flag = (value) => typeof value === "boolean";
const is = (expected) => (value) => value === expected;
const either = (...kinds) => (value) => kinds.some((kind) => kind(value));
const nothing = (value) => value === null;

/** Accept an object with exactly these fields. */
const fields = (shape) => (value) =>
  value instanceof Map &&
  value.size === Object.keys(shape).length &&
  Object.entries(shape).every(([name, kind]) => value.has(name) && kind(value.get(name)));

/** Accept an object with any fields, all of one kind. */
const table = (kind) => (value) =>
  value instanceof Map && [...value].every(([name, entry]) => word(name) && kind(entry));

/** Accept a list, all of one kind. */
const list = (kind, least = 0) => (value) =>
  Array.isArray(value) && value.length >= least && value.every((entry) => kind(entry));

const map = fields({ kind: word, input_dim: dim, output_dim: dim });

/** What people are asked besides their vector. */
const question = either(
  fields({ kind: is("classes"), name: word, names: list(word), optional: flag }),
  fields({
    ...{ kind: is("many-classes"), name: word, optional: flag },
    ...{ size: natural(513n, 65536n), names: text(0, 1 << 19) },
  }),
  fields({ kind: is("number"), name: word, low: finite, high: finite, optional: flag }),
  fields({
    ...{ kind: is("bins"), name: word, low: finite, high: finite, optional: flag },
    bins: natural(2n, 65536n),
  }),
);

const PARTS = {
  format: is(FORMAT),
  version: is(VERSION),
  encoder: map,
  randomizer: fields({ kind: word, parameters: table(either(natural(0n), finite, word)) }),
  decoder: map,
  mean_decoder: either(nothing, map),
  guarantee: fields({
    epsilon: fraction,
    delta: fraction,
    unit: either(is("item"), is("user")),
    relation: word,
  }),
  provenance: fields({
    model: either(nothing, fields({ kind: word, name: word, sha256 })),
    public: fields({ count: natural(1n, 10n ** 15n), dim, sha256 }),
    settings: table(either(finite, word)),
    statement: text(0, LONGEST_STATEMENT),
  }),
};

const OPTIONAL = {
  answers: fields({ names: list(word), symbols: list(natural(0n)), kept: list(natural(0n)) }),
  asked: list(question, 1),
};

/** Read a manifest from an untrusted text, as a Map of Maps. */
export function parseManifest(content) {
  let raw;
  try {
    raw = parseJson(content);
  } catch (error) {
    throw new InvalidRelease(`the manifest is not valid JSON: ${error.message}`);
  }
  if (!(raw instanceof Map) || raw.get("format") !== FORMAT) {
    throw new InvalidRelease("this is not an offaxis release");
  }
  if (raw.get("version") !== VERSION) {
    throw new InvalidRelease(
      `the release has format version ${shown(raw.get("version"))}; this client reads version ` +
        `${VERSION}: upgrade the client, or publish the release again`,
    );
  }
  for (const name of raw.keys()) {
    if (!Object.hasOwn(PARTS, name) && !Object.hasOwn(OPTIONAL, name)) {
      throw new InvalidRelease(`the manifest has an unknown field ${shown(name)}`);
    }
  }
  for (const [name, kind] of Object.entries(PARTS)) {
    if (!kind(raw.get(name))) {
      throw new InvalidRelease(`the manifest has an invalid or missing field ${name}`);
    }
  }
  for (const [name, kind] of Object.entries(OPTIONAL)) {
    if (raw.has(name) && !kind(raw.get(name))) {
      throw new InvalidRelease(`the manifest has an invalid field ${name}`);
    }
  }
  if (canonicalJson(raw) !== content) {
    throw new InvalidRelease("the manifest is not in canonical form");
  }
  return raw;
}
