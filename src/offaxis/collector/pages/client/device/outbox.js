/**
 * The rounds that a device has answered, their reports and their state.
 *
 * Contract: a round has one report, ever. It is paid for and kept in one transaction, so a page
 * that is closed leaves both or neither, and it can be sent only after that. Every attempt sends
 * the same bytes; when they are not needed any more, they are removed, since reports of one permanent
 * answer together reveal it. Two tabs may each make a report for one round; one is kept, the other is
 * never sent.
 *
 *     begun ──▶ queued ──▶ sent, or refused: the collector will never accept it
 *                 └──────▶ withdrawing ──▶ withdrawn       also from sent and refused
 */

import { InvalidInput, RoundRefused } from "../errors.js";
import { claimedUnit } from "../release.js";
import { hmac, hmacKey } from "../webcrypto.js";
import { Database } from "./database.js";
import { total } from "./ledger.js";
import { place, sameState } from "./sequences.js";

/** Longest time between two attempts, in ms. A later `nextTry` came from a wrong clock. */
export const LONGEST_WAIT = 6 * 3_600_000;

const LABEL = "offaxis report v1\0";

/** Whether an entry waits to be sent or withdrawn and its time has come. */
export function isDue({ state, nextTry }) {
  if (state !== "queued" && state !== "withdrawing") return false;
  const ahead = nextTry - Date.now();
  return !(ahead > 0 && ahead <= LONGEST_WAIT);
}

/** Whether a report was made for a round, whatever became of it. */
export const isAnswered = ({ state }) => state !== "begun";

/** The bytes of a report that is not sent again are not kept. */
const withoutSpent = (entry) => (entry.state === "queued" ? entry : { ...entry, report: null });

/** Throw RoundRefused for a round that was replaced or rolled back. */
function checkRound(answers, round) {
  const entry = answers.find((answer) => answer.round === round.name);
  if (entry && entry.document !== round.document) {
    throw new RoundRefused(`round ${round.name} was replaced: its document has changed`);
  }
  if (entry && isAnswered(entry)) return;
  const inStudy = answers.filter((a) => a.study === round.study && isAnswered(a));
  const numbers = inStudy.map(({ number }) => number);
  const highest = Math.max(-1, ...numbers);
  if (round.number <= highest) {
    throw new RoundRefused(
      `round ${round.name} is number ${round.number} of study ${round.study}, in which number ` +
        `${highest} was already answered`,
    );
  }
}

/**
 * Record the studies that an older version answered with a release per person, and remove the bytes
 * of reports that it sent.
 */
async function upgrade({ answers, releases, studies }) {
  const answered = (await answers.all()).filter(isAnswered);
  for (const entry of answered.sort((a, b) => a.place - b.place)) {
    const { study, release } = entry;
    await answers.put(withoutSpent(entry));
    const file = await releases.get(release);
    if (claimedUnit(file) === "item" || (await studies.get(study))) continue;
    await studies.put({ release, state: null, payment: null }, study);
  }
}

/** The answers of one device to rounds. */
export class Outbox {
  #database;
  #key;

  static async open(name) {
    const outbox = new Outbox();
    outbox.#database = await Database.open(name, upgrade);
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

  /** Return the entry of a round, if there is one. */
  find(name) {
    return this.#database.alone(({ answers }) => answers.get(name));
  }

  /** Return all entries, in the order in which they were begun. */
  async entries() {
    const entries = await this.#database.alone(({ answers }) => answers.all());
    return entries.sort((a, b) => a.place - b.place);
  }

  /** Return Σε of all payments as an exact fraction, and their number. */
  async spent() {
    const payments = await this.#database.alone((stores) => stores.payments.all());
    return { epsilon: total(payments).toString(), reports: payments.length };
  }

  /** Record that a round is about to be answered; return its entry, which counts the attempts. */
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
      if (!isAnswered(entry)) entry.begun += 1;
      await answers.put(entry);
      return entry;
    });
  }

  /** Reset the count of a round that ended in an error, as opposed to a crash. */
  abandon(round) {
    return this.#change(round.name, (entry) => ({ ...entry, begun: 0 }));
  }

  /**
   * Pay for a round's report and keep it, or return the kept one; then `made` is discarded.
   *
   * `made` is {report, before, after, drew}: the report, the states of the person's sequence that it
   * was made from and leads to, and whether it drew a permanent answer. Returns null if that has
   * changed meanwhile: then nothing is written, and the report must be made again.
   */
  answer(round, release, budget, { report, before, after, drew }, { group, wait }) {
    return this.#database.alone(async (stores) => {
      const { answers, payments, studies } = stores;
      const all = await answers.all();
      checkRound(all, round);
      const begun = all.find((answer) => answer.round === round.name);
      if (!begun) throw new InvalidInput(`round ${round.name} was not begun`);
      if (isAnswered(begun)) return begun;
      const placed = await place(round, release, budget, stores);
      // What was made may rest on another state, or on a draw that is not admitted any more.
      if (!sameState(placed.state, before) || placed.uses !== drew) return null;
      const { key, ...paid } = placed.payment;
      const payment = await payments.put(paid, ...(key === undefined ? [] : [key]));
      for (const reserved of placed.reserved) await payments.put(reserved);
      if (release.sequence || release.guarantee.unit === "user") {
        await studies.put({ release: release.hash, state: after, payment }, round.study);
      }
      const now = Date.now();
      const entry = { ...begun, report, group, state: "queued", nextTry: now + wait };
      await answers.put(entry);
      return entry;
    });
  }

  /**
   * Throw what answer() would throw, before a report is made.
   *
   * Returns {kept}, the entry of a round that was answered meanwhile, or what place() returns.
   */
  check(round, release, budget) {
    return this.#database.alone(async (stores) => {
      const all = await stores.answers.all();
      checkRound(all, round);
      const kept = all.find((answer) => answer.round === round.name && isAnswered(answer));
      if (kept) return { kept };
      return place(round, release, budget, stores);
    });
  }

  /** Record that an entry is about to be sent; return false if another tab was first. */
  async claim({ round, state, attempts }, lease) {
    const unchanged = (entry) => entry.state === state && entry.attempts === attempts;
    const claimed = (entry) => ({ ...entry, attempts: attempts + 1, nextTry: Date.now() + lease });
    return Boolean(
      await this.#change(round, (entry) => (unchanged(entry) ? claimed(entry) : null)),
    );
  }

  /**
   * Record the outcome of a claimed entry, unless it was withdrawn meanwhile; a report that is not
   * sent again is removed.
   */
  settle({ round, state }, next, problem, wait) {
    const settled = { state: next, problem, nextTry: Date.now() + wait };
    return this.#change(round, (entry) =>
      entry.state === state ? withoutSpent({ ...entry, ...settled }) : null,
    );
  }

  /**
   * Withdraw a report: at once if its bytes never left, else through the collector, which finds it by
   * its id.
   */
  async withdraw(name) {
    const withdrawn = await this.#change(name, (entry) => {
      if (!isAnswered(entry)) return null;
      if (!["queued", "sent", "refused"].includes(entry.state)) return entry;
      // nextTry stays: another tab may be sending right now, under a lease.
      return withoutSpent({ ...entry, state: entry.attempts ? "withdrawing" : "withdrawn" });
    });
    if (!withdrawn) {
      throw new InvalidInput(`round ${name} was not answered; no report to withdraw`);
    }
    return withdrawn;
  }

  /** Replace an entry by change(entry) and return it; null if there is no entry or no change. */
  #change(name, change) {
    return this.#database.alone(async ({ answers }) => {
      const entry = await answers.get(name);
      const changed = entry ? change(entry) : null;
      if (changed) await answers.put(changed);
      return changed;
    });
  }

  /** Return the file of a release that keepRelease() kept. */
  release(hash) {
    return this.#database.alone(({ releases }) => releases.get(hash));
  }

  /** Keep the file of a release. */
  async keepRelease(hash, content) {
    await this.#database.alone(({ releases }) => releases.put(content, hash));
  }
}
