/**
 * Which rounds a device has answered, with what, and what became of it.
 *
 * Contract: a round has one report, ever. It is paid for and kept in one transaction, so a page that
 * is closed leaves both or neither, and it can be sent only after that. What is sent again is the
 * same bytes. Two tabs may make a report of one round each; one is kept, the other never leaves.
 *
 *     begun ──▶ queued ──▶ sent, or refused: the collector will never take it
 *                 └──────▶ withdrawing ──▶ withdrawn       also from sent and refused
 */

import { InvalidInput, RoundRefused } from "../errors.js";
import { hmac, hmacKey } from "../webcrypto.js";
import { Database } from "./database.js";
import { total } from "./ledger.js";

/** Milliseconds between two tries. A time further ahead was written by a clock that was wrong. */
export const LONGEST_WAIT = 6 * 3_600_000;

const LABEL = "offaxis report v1\0";

/** Whether an entry waits to be sent or withdrawn, and its time has come. */
export function isDue({ state, nextTry }) {
  if (state !== "queued" && state !== "withdrawing") return false;
  const ahead = nextTry - Date.now();
  return !(ahead > 0 && ahead <= LONGEST_WAIT);
}

/** Refuse a round that was replaced, or that leads back. */
function checkRound(answers, round) {
  const known = answers.find((answer) => answer.round === round.name);
  if (known && known.document !== round.document) {
    throw new RoundRefused(`round ${round.name} was replaced: it is not what it was before`);
  }
  if (known?.report) return;
  const numbers = answers.filter((a) => a.study === round.study && a.report).map((a) => a.number);
  const highest = Math.max(-1, ...numbers);
  if (round.number <= highest) {
    throw new RoundRefused(
      `round ${round.name} is number ${round.number} of study ${round.study}, in which number ` +
        `${highest} was answered already`,
    );
  }
}

/** Refuse a second report of a release that allows one a person. */
function checkOnly(answers, round) {
  const other = answers.find((answer) => answer.release === round.release && answer.report);
  if (other) {
    throw new RoundRefused(
      `the release of round ${round.name} is for one report a person, and round ${other.round} ` +
        `was answered with it`,
    );
  }
}

/** The answers of one device. */
export class Outbox {
  #database;
  #key;

  static async open(name) {
    const outbox = new Outbox();
    outbox.#database = await Database.open(name);
    const fresh = await hmacKey();
    outbox.#key = await outbox.#database.alone(async ({ keys }) => {
      const kept = await keys.get("device");
      if (!kept) await keys.put(fresh, "device");
      return kept ?? fresh;
    });
    return outbox;
  }

  close() {
    this.#database.close();
  }

  /** Return what is known of a round. */
  find(name) {
    return this.#database.alone(({ answers }) => answers.get(name));
  }

  /** Return everything, in the order it was begun. */
  async entries() {
    const found = await this.#database.alone(({ answers }) => answers.all());
    return found.sort((a, b) => a.place - b.place);
  }

  /** Return what was paid: Σε as an exact fraction, and for how many reports. */
  async spent() {
    const payments = await this.#database.alone((stores) => stores.payments.all());
    return { epsilon: total(payments).toString(), reports: payments.length };
  }

  /** Write down that a round is about to be answered; return it, with how often it was begun. */
  async begin(round, group) {
    const id = await hmac(this.#key, new TextEncoder().encode(LABEL + round.name));
    return this.#database.alone(async ({ answers }) => {
      const all = await answers.all();
      checkRound(all, round);
      const { name, study, number, document, release } = round;
      const fresh = {
        ...{ round: name, study, number, document, release, group, id, place: all.length },
        ...{ report: null, state: "begun", begun: 0, attempts: 0, nextTry: 0, problem: "" },
      };
      const entry = all.find((answer) => answer.round === name) ?? fresh;
      if (!entry.report) entry.begun += 1;
      await answers.put(entry);
      return entry;
    });
  }

  /** Forget how often a round was begun: this time it ended in an error, not in silence. */
  abandon(round) {
    return this.#change(round.name, (entry) => ({ ...entry, begun: 0 }));
  }

  /**
   * Pay for a round's report and keep it, or return the one that is kept; then the given bytes are
   * to be thrown away.
   */
  answer(round, guarantee, budget, report, { group, wait }) {
    return this.#database.alone(async ({ answers, payments }) => {
      const all = await answers.all();
      checkRound(all, round);
      const known = all.find((answer) => answer.round === round.name);
      if (!known) throw new InvalidInput(`round ${round.name} was not begun`);
      if (known.report) return known;
      if (guarantee.unit === "user") checkOnly(all, round);
      const { epsilon } = guarantee;
      const now = Date.now();
      budget.check(await payments.all(), epsilon, now);
      await payments.put({ paidAt: now, release: round.release, epsilon });
      const entry = { ...known, report, group, state: "queued", nextTry: now + wait };
      await answers.put(entry);
      return entry;
    });
  }

  /** Throw what answer() would, before anything is made. */
  check(round, guarantee, budget) {
    return this.#database.alone(async ({ answers, payments }) => {
      if (guarantee.unit === "user") checkOnly(await answers.all(), round);
      budget.check(await payments.all(), guarantee.epsilon, Date.now());
    });
  }

  /** Write down that an entry is about to be sent; false if another tab was first. */
  async claim({ round, state, attempts }, lease) {
    const fits = (entry) => entry.state === state && entry.attempts === attempts;
    const claimed = (entry) => ({ ...entry, attempts: attempts + 1, nextTry: Date.now() + lease });
    return Boolean(await this.#change(round, (entry) => (fits(entry) ? claimed(entry) : null)));
  }

  /** Write down what became of a claimed entry, unless it was withdrawn meanwhile. */
  settle({ round, state }, next, problem, wait) {
    const settled = { state: next, problem, nextTry: Date.now() + wait };
    return this.#change(round, (entry) => (entry.state === state ? { ...entry, ...settled } : null));
  }

  /** Withdraw a report: at once if its bytes never left, else the collector is to be told. */
  async withdraw(name) {
    const withdrawn = await this.#change(name, (entry) => {
      if (!entry.report) return null;
      if (!["queued", "sent", "refused"].includes(entry.state)) return entry;
      // The time stays: another tab may be sending just now, under a lease.
      return { ...entry, state: entry.attempts ? "withdrawing" : "withdrawn" };
    });
    if (!withdrawn) throw new InvalidInput(`round ${name} was not answered; there is no report`);
    return withdrawn;
  }

  /** Replace an entry by what `change` makes of it; return that, or null if there is nothing. */
  #change(name, change) {
    return this.#database.alone(async ({ answers }) => {
      const entry = await answers.get(name);
      const changed = entry ? change(entry) : null;
      if (changed) await answers.put(changed);
      return changed;
    });
  }

  /** Return the file of a release that was fetched before. */
  release(hash) {
    return this.#database.alone(({ releases }) => releases.get(hash));
  }

  /** Keep the file of a release, which stays what it is. */
  async keepRelease(hash, content) {
    await this.#database.alone(({ releases }) => releases.put(content, hash));
  }
}
