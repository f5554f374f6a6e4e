/**
 * Documents that a publisher signs: releases, and rounds in which they are reported.
 *
 * A signature covers one hash in one role: a signed release cannot pass for a round, nor a round
 * for a release, and neither can be changed by a byte.
 */

import { InvalidDocument, shown } from "./errors.js";
import { canonicalJson, parseJson } from "./strict_json.js";
import { ed25519Key, ed25519Verify, fromHex, sha256 } from "./webcrypto.js";

const RELEASE = "offaxis release v1\0";
const ROUND = "offaxis round v1\0";
const LARGEST_ROUND = 32_768;
const MOST_GROUPS = 500;
const LONGEST_KEEPING = 36_500n;
const SIGNATURE_BYTES = 64;

const name = (value) => typeof value === "string" && /^[a-z0-9][a-z0-9-]{0,62}$/.test(value);
const natural = (most) => (value) => typeof value === "bigint" && value >= 0n && value <= most;
const group = (value) =>
  typeof value === "string" && value.length <= 100 && /^[!-~][ -~]*$/.test(value);
const TIME = /^[2-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const time = (value) => {
  if (typeof value !== "string" || !TIME.test(value)) return false;
  const read = new Date(value);
  return Number.isFinite(read.getTime()) && read.toISOString() === value.replace("Z", ".000Z");
};

const FIELDS = {
  name,
  study: name,
  number: natural(2n ** 53n),
  release: (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value),
  opens: time,
  closes: time,
  groups: (value) =>
    Array.isArray(value) &&
    value.length <= MOST_GROUPS &&
    value.every(group) &&
    new Set(value).size === value.length,
  keep_days: natural(LONGEST_KEEPING),
};

/**
 * Read an untrusted round strictly: the bytes of its document, or an object parsed from a
 * collector's JSON, which is then written in canonical form.
 */
export function readRound(document) {
  let fields, text;
  try {
    const isBytes = document instanceof Uint8Array;
    text = decoded(isBytes ? document : encoded(canonicalJson(asMaps(document))));
    fields = parseJson(text);
  } catch (error) {
    throw new InvalidDocument(`not a round: ${shown(error.message)}`);
  }
  if (!(fields instanceof Map) || fields.size !== Object.keys(FIELDS).length) {
    throw new InvalidDocument("not a round: it has other fields");
  }
  for (const [field, isValid] of Object.entries(FIELDS)) {
    if (!isValid(fields.get(field))) throw new InvalidDocument(`not a round: invalid ${field}`);
  }
  if (canonicalJson(fields) !== text) {
    throw new InvalidDocument("the round is not in canonical form; write it again");
  }
  const [opens, closes] = [new Date(fields.get("opens")), new Date(fields.get("closes"))];
  if (!(opens < closes)) throw new InvalidDocument("not a round: it closes before it opens");
  return Object.freeze({
    name: fields.get("name"),
    study: fields.get("study"),
    number: Number(fields.get("number")),
    release: fields.get("release"),
    opens,
    closes,
    groups: Object.freeze(fields.get("groups")),
    keepDays: Number(fields.get("keep_days")),
    document: text,
  });
}

/** Decode a document's text, up to the largest allowed size. */
function decoded(bytes) {
  if (bytes.length > LARGEST_ROUND) throw new RangeError(`larger than ${LARGEST_ROUND} bytes`);
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Convert the result of JSON.parse to what canonicalJson takes. */
function asMaps(value) {
  if (Array.isArray(value)) return value.map(asMaps);
  if (typeof value === "number") return Number.isInteger(value) ? BigInt(value) : value;
  if (typeof value !== "object" || value === null) return value;
  return new Map(Object.entries(value).map(([key, entry]) => [key, asMaps(entry)]));
}

/** Throw InvalidDocument unless the publisher's key signed this release. */
export async function verifyRelease(publisher, hash, signature) {
  const digest = fromHex(hash, 32);
  if (!digest) throw new InvalidDocument("a release's hash must be 64 hexadecimal digits");
  await verify(publisher, signature, RELEASE, digest, "release");
}

/** Throw InvalidDocument unless the publisher's key signed this round. */
export async function verifyRound(publisher, round, signature) {
  const digest = await sha256(encoded(readRound(encoded(round.document)).document));
  await verify(publisher, signature, ROUND, digest, "round");
}

async function verify(publisher, signature, role, digest, what) {
  const key = await publicKey(publisher);
  const wellFormed = signature instanceof Uint8Array && signature.length === SIGNATURE_BYTES;
  const message = new Uint8Array([...encoded(role), ...digest]);
  if (!wellFormed || !(await ed25519Verify(key, signature, message))) {
    throw new InvalidDocument(`the ${what} is not signed by the publisher's key`);
  }
}

/** Return a public key from its 64 hexadecimal digits, or throw if this browser cannot use it. */
export async function publicKey(text) {
  const bytes = fromHex(text, 32);
  if (!bytes) throw new InvalidDocument("a public key must be 64 hexadecimal digits");
  try {
    return await ed25519Key(bytes);
  } catch (error) {
    throw new InvalidDocument(
      `this browser cannot use the publisher's key (${error.message}); without Ed25519, pin the ` +
        "hash of a release instead",
    );
  }
}

const encoded = (text) => new TextEncoder().encode(text);
