/**
 * What a device believes and accepts, whatever a collector says.
 *
 * Contract: a round counts if the publisher whose key the device knows signed it, or if it asks for
 * the one release that the device knows. A release counts if its content has the hash the round
 * names, and if the guarantee computed from its parameters is within the device's own limit.
 */

import { publicKey, readRound, verifyRound } from "../documents.js";
import { InvalidDocument, InvalidInput, RoundRefused, shown } from "../errors.js";
import { exactEpsilon } from "../fraction.js";
import { loadRelease } from "../release.js";

const UNITS = ["item", "user"];

export class Terms {
  /** Refuse terms by which anything could come in, and a key that this browser cannot use. */
  static async of({ publisher, release, epsilon, unit = "item" }) {
    if (publisher === undefined && release === undefined) {
      throw new InvalidInput("a device must know its publisher's key, or the hash of its release");
    }
    if (release !== undefined && !/^[0-9a-f]{64}$/.test(release)) {
      throw new InvalidInput(
        `a release's hash has 64 small hexadecimal digits, got ${shown(release)}`,
      );
    }
    if (!UNITS.includes(unit)) {
      throw new InvalidInput(`unit must be "item" or "user", got unit=${shown(unit)}`);
    }
    if (publisher !== undefined) await publicKey(publisher);
    return Object.freeze(
      Object.assign(new Terms(), { publisher, release, unit, epsilon: exactEpsilon(epsilon) }),
    );
  }

  /** Read one round as a collector offers it; its state is only the collector's word. */
  async offer(entry) {
    const document = entry?.document;
    if (typeof document !== "object" || document === null || Array.isArray(document)) {
      throw new InvalidDocument("the collector offers what is no round");
    }
    const round = readRound(document);
    if (this.publisher !== undefined) {
      await verifyRound(this.publisher, round, signature(entry.signature));
    }
    if (this.release !== undefined && round.release !== this.release) {
      throw new RoundRefused(
        `round ${round.name} asks for release ${round.release.slice(0, 8)}…, this device reports ` +
          `${this.release.slice(0, 8)}… only`,
      );
    }
    const state = typeof entry.state === "string" ? entry.state : "unknown";
    return Object.freeze({ round, state });
  }

  /** Read a release and recompute what it promises. */
  async accept(content, hash) {
    const release = await loadRelease(content, { expect: hash });
    release.checkLimit({ epsilon: this.epsilon, unit: this.unit });
    return release;
  }
}

function signature(text) {
  if (typeof text !== "string" || !/^[A-Za-z0-9+/]{86}==$/.test(text)) {
    throw new InvalidDocument("the round comes without a signature");
  }
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
