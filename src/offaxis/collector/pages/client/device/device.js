/**
 * A device that answers rounds: it verifies, pays, reports once, and sends until it is taken.
 *
 *     const device = await Device.open({ url, publisher, token, limits: [{ epsilon: 8 }] });
 *     for (const { round } of await device.rounds()) await device.report(round.name, encode);
 *     device.keepSending();
 *
 * Contract: whatever the collector does, the device sends at most one report a round, always the
 * same bytes, of a release that its own terms accept, within its own limits. Whether there is a
 * usable vector changes nothing that can be seen from outside.
 */

import { InvalidDocument, InvalidInput, RoundRefused, Unreachable, shown } from "../errors.js";
import { checkedVector } from "../release.js";
import { toHex } from "../webcrypto.js";
import { Budget } from "./ledger.js";
import { Outbox } from "./outbox.js";
import { deliver, uniform } from "./sending.js";
import { Terms } from "./terms.js";
import { SMALL, Transport } from "./transport.js";

const LARGEST_RELEASE = 1 << 28;
const LISTED = 8 * SMALL;
const TRIES = 3;
const SLOW = 10; // times the usual patience, for a release
const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;

const OWN = Symbol("made by Device.open");

export class Device {
  #terms;
  #budget;
  #transport;
  #outbox;
  #spread;
  #state;

  constructor(key) {
    if (key !== OWN) throw new InvalidInput("a device is made by Device.open()");
  }

  /** Open this browser's device, which is made the first time. */
  static async open({
    url,
    publisher,
    release,
    limits,
    epsilon,
    unit,
    token,
    state = "offaxis",
    spread = 3600,
    patience = 60,
  }) {
    const device = new Device(OWN);
    device.#budget = new Budget(limits);
    const most = epsilon ?? device.#budget.smallest;
    device.#terms = await Terms.of({ publisher, release, epsilon: most, unit });
    device.#transport = new Transport(url, { token, patience });
    device.#spread = 1000 * spread;
    device.#state = String(state);
    device.#outbox = await Outbox.open(device.#state);
    // What the browser throws away when it is short of space would be paid for again.
    navigator.storage?.persist?.().catch(() => {});
    return Object.freeze(device);
  }

  /** Close the state. */
  close() {
    this.#outbox.close();
  }

  /** Return the rounds that the collector offers and this device believes; others are left out. */
  async rounds() {
    const { rounds } = await this.#json("/v1/rounds");
    if (!Array.isArray(rounds)) throw new Unreachable("the collector lists no rounds");
    const offers = [];
    for (const entry of rounds) {
      try {
        offers.push(await this.#terms.offer(entry));
      } catch (error) {
        if (!(error instanceof InvalidDocument || error instanceof RoundRefused)) throw error;
      }
    }
    return offers;
  }

  /**
   * Answer a round, once: verify it, pay, make the report and keep it to be sent.
   *
   * A round that was answered is not answered again: what was kept is returned, nothing is paid, and
   * the vector is not looked at. A vector, or a function that returns one: what cannot be used
   * becomes a report of the public mean, so that nobody learns of it.
   */
  async report(name, vector, { group = null } = {}) {
    if (typeof name !== "string" || !NAME.test(name)) {
      throw new InvalidInput(`${shown(name)} is no name of a round`);
    }
    const known = await this.#outbox.find(name);
    if (known?.report) return shownEntry(known);
    const { round, state } = await this.#terms.offer(await this.#json(`/v1/rounds/${name}`));
    if (round.name !== name) {
      throw new RoundRefused(`the collector gives round ${round.name} for ${name}`);
    }
    if (state === "closed") throw new RoundRefused(`round ${name} is closed`);
    if (!(round.groups.length ? round.groups : [null]).includes(group)) {
      const wanted = round.groups.length ? `is one of ${round.groups.join(", ")}` : "is not wanted";
      throw new InvalidInput(`the group for round ${name} ${wanted}, got group=${shown(group)}`);
    }
    const release = await this.#release(round.release);
    // One tab after the other, so that a tab that waits is not taken for one that crashed.
    const answered = () => this.#answered(round, release, vector, group);
    return shownEntry(await navigator.locks.request(`${this.#state} ${name}`, answered));
  }

  async #answered(round, release, vector, group) {
    const { guarantee } = release;
    const known = await this.#outbox.begin(round, group);
    if (known.report) return known;
    try {
      await this.#outbox.check(round, guarantee, this.#budget);
      const usable = await usableVector(release, known.begun <= TRIES ? vector : null);
      // Made before the transaction, which cannot wait for it; only what is kept ever leaves.
      const report = await release.privatize(usable);
      const wait = this.#firstWait(round);
      return await this.#outbox.answer(round, guarantee, this.#budget, report, { group, wait });
    } catch (error) {
      await this.#outbox.abandon(round);
      throw error;
    }
  }

  /** Return how long to wait; the clock only paces, it decides nothing. */
  #firstWait(round) {
    const left = round.closes - Date.now();
    return uniform(left > 0 ? Math.min(this.#spread, left / 2) : this.#spread);
  }

  async #release(hash) {
    const kept = await this.#outbox.release(hash);
    if (kept) return this.#terms.accept(kept, hash);
    const large = { largest: LARGEST_RELEASE, patience: SLOW };
    const answer = await this.#transport.ask("GET", `/v1/releases/${hash}`, large);
    if (answer.status !== 200) {
      throw new Unreachable(`the collector does not give the release: ${answer.words}`);
    }
    const release = await this.#terms.accept(answer.body, hash);
    await this.#outbox.keepRelease(hash, answer.body);
    return release;
  }

  async #json(path) {
    const answer = await this.#transport.ask("GET", path, { largest: LISTED });
    if (answer.status !== 200) {
      throw new Unreachable(`the collector does not give ${path}: ${answer.words}`);
    }
    return answer.json;
  }

  /**
   * Send what is due, and withdraw what is to be withdrawn; return what was tried.
   *
   * It never waits for a report's time: call it now and then, or keepSending(). While the browser
   * says that it is offline nothing is tried. `atOnce` sends every report that waits: whoever sees
   * the traffic then learns when it was made.
   */
  async send({ atOnce = false } = {}) {
    if (navigator.onLine === false) return [];
    const tried = await deliver(this.#outbox, this.#transport, atOnce);
    return (await this.status()).filter((entry) => tried.has(entry.round));
  }

  /** Send what is due now, every so many seconds, and when the browser is online again. */
  keepSending({ every = 60 } = {}) {
    // A try that fails is written down, and one that could not begin is made again.
    const send = () => void this.send().catch(() => {});
    const timer = setInterval(send, 1000 * every);
    globalThis.addEventListener("online", send);
    send();
    return () => {
      clearInterval(timer);
      globalThis.removeEventListener("online", send);
    };
  }

  /**
   * Ask for a report back; send() tells the collector if its bytes may have left.
   *
   * What was paid stays paid, and the round is not answered again.
   */
  async withdraw(name) {
    return shownEntry(await this.#outbox.withdraw(name));
  }

  /** Return every round that was answered or begun, and what became of it. */
  async status() {
    return (await this.#outbox.entries()).map(shownEntry);
  }

  /** Return Σε of all reports, exactly, and how many there were. */
  spent() {
    return this.#outbox.spent();
  }
}

/** Return the vector, or the public mean; which of the two it was is known to nobody else. */
async function usableVector(release, source) {
  try {
    const value = await (typeof source === "function" ? source() : source);
    return checkedVector(value, release.inputDim);
  } catch {
    return release.publicMean;
  }
}

/** What a page may see of an entry. */
function shownEntry({ round, study, number, release, group, id, report, state, ...rest }) {
  const { attempts, nextTry, problem } = rest;
  return Object.freeze({
    ...{ round, study, number, release, group, id: toHex(id), report, state },
    ...{ attempts, nextTry: new Date(nextTry), problem },
  });
}
