/**
 * Which rounds and releases a device accepts, whatever a collector claims.
 *
 * Contract: a round is accepted if the publisher whose key the device holds signed it, or if it
 * names the one release that is pinned on the device; if both are set, both must hold. A release is
 * accepted if its content has the hash that the round names, and if the guarantee computed from its
 * parameters is within the device's own limit.
 */

import { publicKey, readRound, verifyRound } from "../documents.js";
import { InvalidDocument, InvalidInput, RoundRefused, shown } from "../errors.js";
import { exactEpsilon } from "../fraction.js";
import { loadRelease } from "../release.js";

const UNITS = ["item", "user"];

export class Terms {
  /** Return checked terms; reject those under which any collector could be trusted. */
  static async of({ publisher, release, epsilon, unit = "item" }) {
    if (publisher === undefined && release === undefined) {
      throw new InvalidInput("a device needs its publisher's key or the hash of its release");
    }
    if (release !== undefined && !/^[0-9a-f]{64}$/.test(release)) {
      throw new InvalidInput(
        `a release's hash is 64 lower-case hexadecimal digits, got ${shown(release)}`,
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

  /** Read one round from a collector's response; its state is only claimed by the collector. */
  async offer(entry) {
    const document = entry?.document;
    if (typeof document !== "object" || document === null || Array.isArray(document)) {
      throw new InvalidDocument("the collector's response has no document of a round");
    }
    const round = readRound(document);
    if (this.publisher !== undefined) {
      await verifyRound(this.publisher, round, signature(entry.signature));
    }
    if (this.release !== undefined && round.release !== this.release) {
      throw new RoundRefused(
        `round ${round.name} uses release ${round.release.slice(0, 8)}…, this device reports ` +
          `${this.release.slice(0, 8)}… only`,
      );
    }
    const state = typeof entry.state === "string" ? entry.state : "unknown";
    return Object.freeze({ round, state });
  }

  /** Read a release and recompute its guarantee. */
  async accept(content, hash) {
    const release = await loadRelease(content, { expect: hash });
    release.checkLimit({ epsilon: this.epsilon, unit: this.unit });
    return release;
  }
}

function signature(text) {
  if (typeof text !== "string" || !/^[A-Za-z0-9+/]{86}==$/.test(text)) {
    throw new InvalidDocument("the round has no signature");
  }
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
