// Recorded random bits: SHAKE-128 of a name (tests/tape.py).
import { littleInteger, littleWords } from "../../../src/offaxis/collector/pages/client/entropy.js";

const RATE = 168;
const LANE = (1n << 64n) - 1n;
const rotated = (x, n) => (n ? ((x << n) | (x >> (64n - n))) & LANE : x);

// Round constants from the linear feedback shift register x^8 + x^6 + x^5 + x^4 + 1 (FIPS 202).
function* constants() {
  let register = 1;
  for (let round = 0; round < 24; round++) {
    let constant = 0n;
    for (let j = 0; j < 7; j++) {
      if (register & 1) constant |= 1n << BigInt((1 << j) - 1);
      register = register & 128 ? ((register << 1) ^ 0x171) : register << 1;
    }
    yield constant;
  }
}

const ROUNDS = [...constants()];

function permute(state) {
  for (const constant of ROUNDS) {
    const columns = [0, 1, 2, 3, 4].map((x) => [0, 5, 10, 15, 20].reduce((c, y) => c ^ state[x + y], 0n));
    for (let i = 0; i < 25; i++) {
      state[i] ^= columns[(i + 4) % 5] ^ rotated(columns[(i + 1) % 5], 1n);
    }
    let [x, y, carried] = [1, 0, state[1]];
    for (let t = 0; t < 24; t++) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      const lane = x + 5 * y;
      const shift = BigInt((((t + 1) * (t + 2)) / 2) % 64);
      [carried, state[lane]] = [state[lane], rotated(carried, shift)];
    }
    for (let row = 0; row < 25; row += 5) {
      const old = state.slice(row, row + 5);
      for (let i = 0; i < 5; i++) {
        state[row + i] = old[i] ^ (~old[(i + 1) % 5] & LANE & old[(i + 2) % 5]);
      }
    }
    state[0] ^= constant;
  }
}

// Bytes returned in order, with the interface of Entropy; reading past the end fails.
export class Written {
  #bytes;
  used = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  more() {
    throw new RangeError("the tape is too short");
  }

  #take(count) {
    while (this.#bytes.length < this.used + count) {
      this.#bytes = Uint8Array.from([...this.#bytes, ...this.more()]);
    }
    this.used += count;
    return this.#bytes.slice(this.used - count, this.used);
  }

  words(count) {
    return littleWords(this.#take(2 * count));
  }

  integer(bits) {
    return littleInteger(this.#take((bits + 7) >> 3), bits);
  }
}

// The endless SHAKE-128 output of a name.
export class Tape extends Written {
  #state = new Array(25).fill(0n);

  constructor(name) {
    super(new Uint8Array(0));
    const block = new Uint8Array(RATE);
    const text = new TextEncoder().encode(name);
    block.set(text);
    block[text.length] ^= 0x1f;
    block[RATE - 1] ^= 0x80;
    block.forEach((byte, i) => (this.#state[i >> 3] ^= BigInt(byte) << BigInt(8 * (i & 7))));
  }

  more() {
    permute(this.#state);
    return Array.from({ length: RATE }, (_, i) =>
      Number((this.#state[i >> 3] >> BigInt(8 * (i & 7))) & 255n),
    );
  }
}
