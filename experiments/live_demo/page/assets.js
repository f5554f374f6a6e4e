/** The files that the page loads once: public networks, example digits, two releases per budget. */

import { loadRelease } from "../client/index.js";
import { Network } from "./weights.js";

const here = (path) => new URL(path, import.meta.url).href;
const ENCODER = here("../weights/mnist-encoder.safetensors");
const HEAD = here("data/head.safetensors");
const EXAMPLES = here("data/examples.bin");
const ENCODER_LAYERS = ["body.0", "body.2", "mean"].map((name) => [`${name}.weight`, `${name}.bias`]);
const HEAD_LAYERS = [0, 1, 2].map((i) => [`weight.${i}`, `bias.${i}`]);
const PIXELS = 28 * 28;

export const KINDS = ["plain", "recommended"];

/** All files of the page; once loaded, it works offline. */
export class Assets {
  #files;
  #loaded = new Map();

  constructor(rows, files) {
    this.#files = files;
    this.rows = rows;
    this.encoder = new Network(files.get(ENCODER), ENCODER_LAYERS);
    this.head = new Network(files.get(HEAD), HEAD_LAYERS);
    const pixels = new Uint8Array(files.get(EXAMPLES));
    this.examples = Array.from({ length: pixels.length / PIXELS }, (_, i) => ({
      digit: i % 10,
      image: pixels.subarray(PIXELS * i, PIXELS * (i + 1)),
    }));
  }

  /** Fetch all files; `progress` is called with the number of loaded files and their total. */
  static async open(progress) {
    const rows = await (await fetched(here("data/releases.json"))).json();
    const releases = rows.flatMap((row) => KINDS.map((kind) => here(`data/${row[kind].file}`)));
    const addresses = [ENCODER, HEAD, EXAMPLES, ...releases];
    const files = new Map();
    progress(0, addresses.length);
    await Promise.all(
      addresses.map(async (address) => {
        files.set(address, await (await fetched(address)).arrayBuffer());
        progress(files.size, addresses.length);
      }),
    );
    return new Assets(rows, files);
  }

  /**
   * Return the release of a kind at a row's budget.
   *
   * Throws unless its content has the listed hash, and its guarantee, computed from its parameters,
   * is within the chosen budget.
   */
  release(kind, row) {
    const { file, hash } = row[kind];
    if (!this.#loaded.has(file)) this.#loaded.set(file, this.#load(file, hash, row.epsilon));
    return this.#loaded.get(file);
  }

  async #load(file, hash, epsilon) {
    const release = await loadRelease(this.#files.get(here(`data/${file}`)), { expect: hash });
    release.checkLimit({ epsilon });
    return release;
  }
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address} could not be loaded (${answer.status})`);
  return answer;
}
