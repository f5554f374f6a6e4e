/**
 * Public directions: the vectors that a nonce expands to, bit by bit (docs/report-format.md).
 *
 * Nothing here is secret and no guarantee rests on it: a poor generator would only cost utility.
 */

import { OffaxisError } from "./errors.js";
import { upperQuantiles } from "./normal.js";
import { aesStream, sha256, toHex } from "./webcrypto.js";

export const NONCE_BYTES = 12;
const PUBLIC_KEY = new TextEncoder().encode("offaxis rank v1.");
const TABLE_SHA256 = "9d3456d114aad5a18526ed2817a4a3a91b756da278a9ad0fd211b47c8e6ae33f";
const BLOCK = 16;
const WORDS = BLOCK / 2;
const STREAM_BLOCKS = 1 << 16; // held in memory at a time

let cachedTable = null;
let cachedSpread = null;

/** Return the table of 65,536 odd integers that follow the normal law. */
export function table() {
  cachedTable ??= makeTable();
  return cachedTable;
}

async function makeTable() {
  const values = new Int16Array(1 << 16);
  const middle = 1 << 15;
  upperQuantiles().forEach((quantile, k) => {
    const entry = 2 * Math.floor(2048 * quantile) + 1;
    values[middle + k] = entry;
    values[middle - 1 - k] = -entry;
  });
  const packed = new DataView(new ArrayBuffer(2 * values.length));
  values.forEach((value, k) => packed.setInt16(2 * k, value, true));
  if (toHex(await sha256(packed.buffer)) !== TABLE_SHA256) {
    throw new OffaxisError("the table of directions differs on this machine");
  }
  return values;
}

/** Return the root mean square of the table: the length of one standard deviation. */
export async function spread() {
  const squares = (values) => values.reduce((sum, value) => sum + value * value, 0);
  cachedSpread ??= Math.sqrt(squares(await table()) / (1 << 16));
  return cachedSpread;
}

/** Return the number of key-stream blocks per pair. */
export function blocksPerPair(dim) {
  return Math.ceil(dim / WORDS);
}

/** Return the first vectors of `count` pairs, starting at pair `first`, one after the other. */
async function expand(nonce, first, count, dim) {
  const blocks = blocksPerPair(dim);
  const counter = new Uint8Array(BLOCK);
  counter.set(nonce);
  new DataView(counter.buffer).setUint32(NONCE_BYTES, first * blocks);
  const [values, stream] = await Promise.all([
    table(),
    aesStream(PUBLIC_KEY, counter, BLOCK * blocks * count),
  ]);
  const vectors = new Int16Array(count * dim);
  for (let pair = 0, out = 0; pair < count; pair++) {
    const begin = BLOCK * blocks * pair;
    for (let at = begin; at < begin + 2 * dim; at += 2) {
      vectors[out++] = values[stream[at] | (stream[at + 1] << 8)];
    }
  }
  return vectors;
}

/** Return the first vector of one pair. */
export function vector(nonce, pair, dim) {
  return expand(nonce, pair, 1, dim);
}

/**
 * Return ⟨n, g_j⟩ for every pair j, divided by √⟨g_j, g_j⟩ if `normalise` is set.
 *
 * With |n|² <= 2**40, |g_i| < 2**15 and dim <= 2**20 every partial sum is an integer below 2**53,
 * so that no order of summation changes it; root and quotient are correctly rounded.
 */
export async function scores(nonce, pairs, input, normalise) {
  const dim = input.length;
  const out = new Float64Array(pairs);
  const perChunk = Math.max(1, Math.floor(STREAM_BLOCKS / blocksPerPair(dim)));
  for (let first = 0; first < pairs; first += perChunk) {
    const count = Math.min(perChunk, pairs - first);
    const vectors = await expand(nonce, first, count, dim);
    for (let pair = 0, at = 0; pair < count; pair++) {
      let [product, square] = [0, 0];
      for (let i = 0; i < dim; i++, at++) {
        product += input[i] * vectors[at];
        square += vectors[at] * vectors[at];
      }
      out[first + pair] = normalise ? product / Math.sqrt(square) : product;
    }
  }
  return out;
}

/**
 * Return the `near` vectors of highest score, ascending; ties by index.
 *
 * One vector of each pair counts, the one whose score is not negative. Exactly `near` distinct
 * indices are returned whatever the scores are, which is all that a guarantee needs.
 */
export function nearest(score, near) {
  const sizes = score.map(Math.abs);
  const threshold = sizes.slice().sort()[sizes.length - near];
  let ties = near;
  for (const size of sizes) ties -= size > threshold ? 1 : 0;
  const chosen = [];
  sizes.forEach((size, pair) => {
    if (size > threshold || (size === threshold && ties-- > 0)) {
      chosen.push(2 * pair + (score[pair] < 0 ? 1 : 0));
    }
  });
  if (chosen.length !== near) {
    throw new OffaxisError(`a ranking chose ${chosen.length} directions instead of ${near}`);
  }
  return chosen;
}
