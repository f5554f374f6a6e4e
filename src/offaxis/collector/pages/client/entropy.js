/**
 * The only source of randomness for reports: `crypto.getRandomValues`.
 *
 * An Entropy takes no argument and has no state: it cannot be seeded, and a copy of the page cannot
 * repeat it. If the browser provides no randomness, the call fails; there is no weaker fallback.
 */

import { EntropyFailure } from "./errors.js";

const MOST_BYTES = 65536; // per call, a limit of the Web Cryptography API

export class Entropy {
  #take(count) {
    const bytes = new Uint8Array(count);
    try {
      for (let start = 0; start < count; start += MOST_BYTES) {
        globalThis.crypto.getRandomValues(bytes.subarray(start, start + MOST_BYTES));
      }
    } catch (error) {
      throw new EntropyFailure(`the browser provided no randomness: ${error.message}`);
    }
    return bytes;
  }

  /** Return `count` independent uniform bytes. */
  bytes(count) {
    return this.#take(count);
  }

  /** Return `count` independent uniform 16-bit integers. */
  words(count) {
    return littleWords(this.#take(2 * count));
  }

  /** Return one uniform BigInt in [0, 2**bits). */
  integer(bits) {
    return littleInteger(this.#take((bits + 7) >> 3), bits);
  }
}

/** Read bytes as little-endian 16-bit words. */
export function littleWords(bytes) {
  const words = new Uint16Array(bytes.length >> 1);
  for (let i = 0; i < words.length; i++) words[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
  return words;
}

/** Read bytes as one little-endian integer, and return its highest `bits` bits. */
export function littleInteger(bytes, bits) {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[i]);
  return value >> BigInt(8 * bytes.length - bits);
}
