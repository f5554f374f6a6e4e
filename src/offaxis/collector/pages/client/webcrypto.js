/** Web Cryptography: hashes, a public key stream, signatures and HMAC. */

import { OffaxisError } from "./errors.js";

function subtle() {
  const crypto = globalThis.crypto?.subtle;
  if (!crypto) {
    throw new OffaxisError("this page has no Web Cryptography: serve it by https or from localhost");
  }
  return crypto;
}

/** Return the SHA-256 of bytes. */
export async function sha256(bytes) {
  return new Uint8Array(await subtle().digest("SHA-256", bytes));
}

/** Return the AES-128-CTR key stream of a public key, starting at a counter block. */
export async function aesStream(key, counter, size) {
  const imported = await subtle().importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const settings = { name: "AES-CTR", counter, length: 32 };
  return new Uint8Array(await subtle().encrypt(settings, imported, new Uint8Array(size)));
}

/** Import a public Ed25519 key; rejects if it is invalid or the browser has no Ed25519. */
export function ed25519Key(bytes) {
  return subtle().importKey("raw", bytes, "Ed25519", false, ["verify"]);
}

/** Return whether a key signed a message. */
export function ed25519Verify(key, signature, message) {
  return subtle().verify("Ed25519", key, signature, message);
}

/** Return a new random key for hmac(), which can be stored but not exported. */
export function hmacKey() {
  return subtle().generateKey({ name: "HMAC", hash: "SHA-256", length: 256 }, false, ["sign"]);
}

/** Return the HMAC-SHA-256 of a message. */
export async function hmac(key, message) {
  return new Uint8Array(await subtle().sign("HMAC", key, message));
}

/** Write bytes in hexadecimal. */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Read `size` bytes in lower-case hexadecimal; null if the text is anything else. */
export function fromHex(text, size) {
  if (typeof text !== "string" || text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) return null;
  return Uint8Array.from({ length: size }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
