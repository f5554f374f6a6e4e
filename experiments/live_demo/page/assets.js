/** The files that the page loads once: public networks, example digits, people, and releases. */

import { readHeader, readTensors } from "../client/container.js";
import { ENCODERS, take } from "../client/encoders.js";
import { loadRelease } from "../client/index.js";
import { Network, readNumbers } from "./weights.js";

const here = (path) => new URL(path, import.meta.url).href;
const ENCODER = here("../weights/mnist-encoder.safetensors");
const HEAD = here("data/head.safetensors");
const EXAMPLES = here("data/examples.bin");
const PEOPLE = here("data/people.safetensors");
const ENCODER_LAYERS = ["body.0", "body.2", "mean"].map((name) => [`${name}.weight`, `${name}.bias`]);
const HEAD_LAYERS = [0, 1, 2].map((i) => [`weight.${i}`, `bias.${i}`]);
const PIXELS = 28 * 28;

export const KINDS = ["plain", "recommended"];

/** All files of the page; once loaded, it works offline. */
export class Assets {
  #files;
  #loaded = new Map();

  constructor(rows, pairs, files) {
    this.#files = files;
    this.rows = rows;
    /** What the second act compares with, and its releases. */
    this.pairs = pairs;
    [this.people, this.heldOut] = readDigits(files.get(PEOPLE), pairs.held_out);
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
    const lists = ["releases", "pairs"].map((name) => fetched(here(`data/${name}.json`)));
    const [rows, pairs] = await Promise.all(lists.map(async (answer) => (await answer).json()));
    const listed = [...rows.flatMap((row) => KINDS.map((kind) => row[kind])), ...pairs.releases];
    const releases = listed.map(({ file }) => here(`data/${file}`));
    const addresses = [ENCODER, HEAD, EXAMPLES, PEOPLE, ...releases];
    const files = new Map();
    progress(0, addresses.length);
    await Promise.all(
      addresses.map(async (address) => {
        files.set(address, await (await fetched(address)).arrayBuffer());
        progress(files.size, addresses.length);
      }),
    );
    return new Assets(rows, pairs, files);
  }

  /** Return the vector of a 28×28 image of ink. */
  vectorOf(image) {
    return this.encoder.apply(Float64Array.from(image, (ink) => ink / 255));
  }

  /**
   * Return the release of a kind at a row's budget.
   *
   * Throws unless its content has the listed hash, and its guarantee, computed from its parameters,
   * is within the chosen budget.
   */
  release(kind, row) {
    return this.#loadOnce(row[kind], row.epsilon);
  }

  /** Return the release of pairs at a budget, checked in the same way. */
  pairRelease(epsilon) {
    return this.#loadOnce(this.#listed(epsilon), epsilon);
  }

  /** Return what a release of pairs knows about the public: the cell of a vector, and the shares. */
  publicCells(epsilon) {
    const content = new Uint8Array(this.#files.get(here(`data/${this.#listed(epsilon).file}`)));
    const tensors = readTensors(content, readHeader(content));
    const network = ENCODERS.get("network-normalise-cells")(tensors, "encoder");
    const [{ values: shares }] = take(tensors, "decoder", "shares");
    const cellOf = (vector) => {
      const [scores] = network.split(vector);
      return scores.indexOf(Math.max(...scores));
    };
    return { cellOf, shares: [...shares] };
  }

  #listed(epsilon) {
    return this.pairs.releases.find((listed) => listed.epsilon === epsilon);
  }

  #loadOnce({ file, hash }, epsilon) {
    if (!this.#loaded.has(file)) this.#loaded.set(file, this.#load(file, hash, epsilon));
    return this.#loaded.get(file);
  }

  async #load(file, hash, epsilon) {
    const release = await loadRelease(this.#files.get(here(`data/${file}`)), { expect: hash });
    release.checkLimit({ epsilon });
    return release;
  }
}

/** Return {vector, digit} of all people, and of the digits that are held out, which come first. */
function readDigits(buffer, heldOut) {
  const [vectors, labels, step] = ["vectors", "labels", "step"].map(readNumbers(buffer));
  const size = vectors.length / labels.length;
  const digits = Array.from(labels, (digit, i) => {
    const entries = vectors.subarray(size * i, size * (i + 1));
    return { digit, vector: entries.map((entry) => step[0] * entry) };
  });
  return [digits.slice(heldOut), digits.slice(0, heldOut)];
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address} could not be loaded (${answer.status})`);
  return answer;
}
