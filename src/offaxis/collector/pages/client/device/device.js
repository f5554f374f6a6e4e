/**
 * A device that answers rounds: verify, pay, report once, and send until accepted.
 *
 *     const device = await Device.open({ url, publisher, token, limits: [{ epsilon: 8 }] });
 *     for (const { round } of await device.rounds()) await device.report(round.name, encode);
 *     device.keepSending();
 *
 * Contract: whatever the collector does, the device sends at most one report per round, always the
 * same bytes, of a release that its own terms accept, within its own limits. Whether there is a
 * usable vector changes nothing that an outsider can observe.
 */

import { InvalidDocument, InvalidInput, RoundRefused, Unreachable, shown } from "../errors.js";
import { checkedVector } from "../release.js";
import { toHex } from "../webcrypto.js";
import { Budget } from "./ledger.js";
import { Outbox, isAnswered } from "./outbox.js";
import { deliver, uniform } from "./sending.js";
import { nextReport } from "./sequences.js";
import { Terms } from "./terms.js";
import { SMALL, Transport } from "./transport.js";

const LARGEST_RELEASE = 1 << 28;
const LARGEST_LIST = 8 * SMALL;
const MAX_ATTEMPTS = 3; // to compute a vector, each of which closed the page
const RELEASE_PATIENCE = 10; // multiple of the usual patience
const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;

const FROM_OPEN = Symbol("made by Device.open");

export class Device {
  #terms;
  #budget;
  #transport;
  #outbox;
  #spread;
  #state;

  constructor(key) {
    if (key !== FROM_OPEN) throw new InvalidInput("create a device with Device.open()");
  }

  /** Open this browser's device; it is created the first time. */
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
    const device = new Device(FROM_OPEN);
    device.#budget = new Budget(limits);
    const most = epsilon ?? device.#budget.largestReport;
    device.#terms = await Terms.of({ publisher, release, epsilon: most, unit });
    device.#transport = new Transport(url, { token, patience });
    device.#spread = 1000 * spread;
    device.#state = String(state);
    device.#outbox = await Outbox.open(device.#state);
    // A state that the browser evicts when it is short of space would be paid for again.
    navigator.storage?.persist?.().catch(() => {});
    return Object.freeze(device);
  }

  /** Close the state. */
  close() {
    this.#outbox.close();
  }

  /** Return the collector's rounds that this device trusts; the others are left out. */
  async rounds() {
    const { rounds } = await this.#json("/v1/rounds");
    if (!Array.isArray(rounds)) {
      throw new Unreachable("the collector's response has no list of rounds");
    }
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
   * Answer a round, once: verify it, pay, make the report and keep it for sending.
   *
   * A round is answered only once. A second call returns the same entry, pays nothing and does not
   * evaluate the vector. Once the report is sent, its bytes are not kept. `vector` is a vector or a function that returns one; for a release of pairs
   * it is {vector, answers}. An unusable one becomes a report of the public mean, so that nobody
   * learns of it. A round of a sequence that draws no permanent answer does not evaluate it either.
   */
  async report(name, vector, { group = null } = {}) {
    if (typeof name !== "string" || !NAME.test(name)) {
      throw new InvalidInput(`${shown(name)} is not a valid name of a round`);
    }
    const kept = await this.#outbox.find(name);
    if (kept && isAnswered(kept)) return publicEntry(kept);
    const { round, state } = await this.#terms.offer(await this.#json(`/v1/rounds/${name}`));
    if (round.name !== name) {
      throw new RoundRefused(`the collector returned round ${round.name} for ${name}`);
    }
    if (state === "closed") throw new RoundRefused(`round ${name} is closed`);
    if (!(round.groups.length ? round.groups : [null]).includes(group)) {
      const allowed = round.groups.length ? `one of ${round.groups.join(", ")}` : "null";
      throw new InvalidInput(
        `the group for round ${name} must be ${allowed}, got group=${shown(group)}`,
      );
    }
    const release = await this.#release(round.release);
    // One tab at a time, so that a waiting tab is not mistaken for one that crashed.
    const answer = () => this.#answer(round, release, vector, group);
    return publicEntry(await navigator.locks.request(`${this.#state} ${name}`, answer));
  }

  async #answer(round, release, vector, group) {
    const entry = await this.#outbox.begin(round, group);
    if (isAnswered(entry)) return entry;
    const source = entry.begun <= MAX_ATTEMPTS ? vector : null;
    try {
      const wait = this.#firstWait(round);
      for (let usable = null; ; ) {
        const { kept, state, uses } = await this.#outbox.check(round, release, this.#budget);
        if (kept) return kept;
        // A vector that no report uses is not evaluated, and one that is, only once.
        if (uses) usable ??= await usableVector(release, source);
        // Made before the transaction, which cannot await it; only a kept report is ever sent.
        const made = await makeReport(release, state, round.number, uses ? usable : null);
        const sending = { group, wait };
        const answer = await this.#outbox.answer(round, release, this.#budget, made, sending);
        if (answer) return answer;
        // Another tab has continued the sequence: what was made here is discarded.
      }
    } catch (error) {
      await this.#outbox.abandon(round);
      throw error;
    }
  }

  /** Return the time until the first send. The clock affects timing and nothing else. */
  #firstWait(round) {
    const left = round.closes - Date.now();
    return uniform(left > 0 ? Math.min(this.#spread, left / 2) : this.#spread);
  }

  async #release(hash) {
    const kept = await this.#outbox.release(hash);
    if (kept) return this.#terms.accept(kept, hash);
    const limits = { largest: LARGEST_RELEASE, patience: RELEASE_PATIENCE };
    const response = await this.#transport.request("GET", `/v1/releases/${hash}`, limits);
    if (response.status !== 200) {
      throw new Unreachable(`the collector did not return the release: ${response.message}`);
    }
    const release = await this.#terms.accept(response.body, hash);
    await this.#outbox.keepRelease(hash, response.body);
    return release;
  }

  async #json(path) {
    const response = await this.#transport.request("GET", path, { largest: LARGEST_LIST });
    if (response.status !== 200) {
      throw new Unreachable(`the collector did not return ${path}: ${response.message}`);
    }
    return response.json;
  }

  /**
   * Send what is due, withdraw what is to be withdrawn, and return what was attempted.
   *
   * It never waits: call it periodically, or use keepSending(). While the browser is offline,
   * nothing is attempted. `atOnce` sends every queued report, even if it is not due; this reveals
   * to an observer of the traffic when the report was made.
   */
  async send({ atOnce = false } = {}) {
    if (navigator.onLine === false) return [];
    const attempted = await deliver(this.#outbox, this.#transport, atOnce);
    return (await this.status()).filter((entry) => attempted.has(entry.round));
  }

  /** Send what is due now, every `every` seconds, and when the browser is online again. */
  keepSending({ every = 60 } = {}) {
    // A failed attempt is recorded, and one that could not begin is repeated next time.
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
   * Withdraw a report; send() informs the collector if its bytes may have left.
   *
   * The payment stands, and the round is not answered again.
   */
  async withdraw(name) {
    return publicEntry(await this.#outbox.withdraw(name));
  }

  /** Return every round that was answered or begun, with its state. */
  async status() {
    return (await this.#outbox.entries()).map(publicEntry);
  }

  /** Return Σε of all payments, exactly, and their number: one per report or permanent answer. */
  spent() {
    return this.#outbox.spent();
  }
}

/** Return the vector or the row of a pair; the public mean if it is unusable, without revealing which. */
async function usableVector(release, source) {
  try {
    const value = await (typeof source === "function" ? source() : source);
    if (value?.vector !== undefined) return release.pair(value.vector, value.answers);
    return checkedVector(value, release.inputDim);
  } catch {
    return release.publicMean;
  }
}

/** Make the report of a round, with the states of the sequence before and after it, if any. */
async function makeReport(release, before, number, vector) {
  if (!release.sequence) {
    return { report: await release.privatize(vector), before: null, after: null, drew: true };
  }
  const { report, state } = await nextReport(release, before, number, vector);
  return { report, before, after: state, drew: vector !== null };
}

/** Return the part of an entry that pages may see. */
function publicEntry({ round, study, number, release, group, id, report, state, ...rest }) {
  const { attempts, nextTry, problem } = rest;
  return Object.freeze({
    ...{ round, study, number, release, group, id: toHex(id), report, state },
    ...{ attempts, nextTry: new Date(nextTry), problem },
  });
}
