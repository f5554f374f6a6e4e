/**
 * Reports under a promise per person: one report per study, or a sequence within ε∞.
 *
 * Contract: in one study a person reports one release whose guarantee is per person (unit "user"), or
 * one sequence, and no other release; or releases whose guarantees are per report (unit "item"). An
 * ordinary release gives one report. A memoised one gives any number of reports, drawn from at most
 * R permanent answers; all of these are paid for together, with the first report, and each counts
 * in every period in which it is drawn or reported. Which rounds draw one depends on the numbers of
 * the rounds, on randomness and on payments, never on a vector, and the vector of any other round is
 * not used at all. A draw that a limit per period does not admit is put off.
 *
 * The state of a sequence:
 *
 *     held    the permanent answer in force; secret: whoever sees it sees a report of ε
 *     drawn   the round in which it was drawn
 *     renew   the round from which on the next one is drawn
 *     count   permanent answers drawn so far
 *     last    the last round that was answered
 */

import { Entropy } from "../entropy.js";
import { InvalidInput, RoundRefused } from "../errors.js";
import { below } from "../exact.js";
import { layersOf } from "../release.js";
import { RESERVED } from "./ledger.js";

/** Whether a round may draw a permanent answer, which needs its vector. */
export function drawsAnswer({ draws }, state, number) {
  if (!state) return true;
  return number >= state.renew && (draws === 0 || state.count < draws);
}

/**
 * Make the report of a round; return it and the new state, which is kept before it leaves.
 *
 * `state` is the one after the last report, or null before the first. `vector` is null if the round
 * draws no permanent answer.
 */
export async function nextReport(release, state, number, vector) {
  const last = state?.last ?? -1;
  if (!(number > last)) {
    throw new InvalidInput(
      "rounds of a sequence are numbered upwards: the last report was for round " +
        `${last}, got number ${number}`,
    );
  }
  const { hold, show } = layersOf(release);
  let next = { ...state, last: number };
  if (!state && !vector) throw new InvalidInput("the first report of a sequence needs a vector");
  if (vector && drawsAnswer(release.sequence, state, number)) {
    const renew = renewal(release.sequence, state, number);
    const held = await hold(vector);
    next = { held, drawn: number, renew, count: (state?.count ?? 0) + 1, last: number };
  }
  return { report: await show(next.held, number - next.drawn), state: next };
}

/**
 * Return the round from which on the next permanent answer is drawn.
 *
 * The first wait is uniform over a period, from half a period on, so that people who start together
 * do not renew together; later waits have a period.
 */
function renewal({ period }, state, number) {
  if (state) return number + period;
  const firstWait = Math.floor((period + 1) / 2);
  return number + firstWait + below(period, 1, new Entropy())[0];
}

/** Whether two states, or null, are the same. */
export function sameState(first, second) {
  if (!first || !second) return !first && !second;
  return (
    ["drawn", "renew", "count", "last"].every((name) => first[name] === second[name]) &&
    first.held.length === second.held.length &&
    first.held.every((byte, i) => byte === second.held[i])
  );
}

/**
 * Return what the report of a round does, and its payments; throw RoundRefused if it would be the
 * person's second under one promise per person, and BudgetExceeded if a limit does not admit it.
 *
 *     state     the state of the person's sequence; null before its first report
 *     uses      whether the report uses the vector of its round
 *     payment   what the report counts as from now on; `key` is that of an earlier payment that it
 *               takes the place of: a reserved one, or the one of the answer in force
 *     reserved  payments for later draws
 */
export async function place(round, release, budget, { answers, studies, payments }) {
  const { sequence, guarantee, hash } = release;
  const kept = await studies.get(round.study);
  const all = await payments.all();
  const now = Date.now();
  const epsilon = sequence ? sequence.epsilon : guarantee.epsilon;
  const payment = { paidAt: now, release: hash, epsilon };
  if (!(sequence && kept?.state && kept.release === hash)) {
    if (sequence || guarantee.unit === "user") {
      checkFirst(round, release, kept, all, await answers.all());
    } else {
      checkItems(round, release, kept);
    }
    const later = sequence ? Math.max(0, sequence.draws - 1) : 0;
    const reserved = Array.from({ length: later }, () => ({ ...payment, paidAt: RESERVED }));
    budget.check(all, epsilon, now, reserved);
    return { state: null, uses: true, payment, reserved };
  }
  const keys = await payments.keys();
  const { state } = kept;
  if (drawsAnswer(sequence, state, round.number)) {
    const drawn = { state, uses: true, reserved: [] };
    if (sequence.draws === 0) {
      if (budget.admits(all, epsilon, now)) return { ...drawn, payment };
    } else {
      const at = all.findIndex((paid) => paid.release === hash && paid.paidAt === RESERVED);
      if (at >= 0 && budget.admitsReserved(all, epsilon, now)) {
        return { ...drawn, payment: { ...payment, key: keys[at] } };
      }
    }
  }
  // The answer in force is paid for, but it is reported in this period, too.
  const others = all.filter((_, i) => keys[i] !== kept.payment);
  budget.checkNow(others, epsilon, now);
  // A clock that was set back must not make a payment older.
  const { paidAt } = all[keys.indexOf(kept.payment)];
  const moved = { ...payment, paidAt: Math.max(now, paidAt), key: kept.payment };
  return { state, uses: false, payment: moved, reserved: [] };
}

/** Throw RoundRefused if a study has one promise per person, which a report per item is outside of. */
function checkItems(round, { hash }, kept) {
  if (!kept) return;
  throw new RoundRefused(
    `study ${round.study} has one promise for all reports of a person, those of release ` +
      `${kept.release.slice(0, 8)}…; release ${hash.slice(0, 8)}… needs a study of its own, and the ` +
      "costs of studies add up",
  );
}

function checkFirst(round, { hash }, kept, payments, answers) {
  if (kept) {
    throw new RoundRefused(
      `study ${round.study} allows one report or one sequence per person, and this person reports ` +
        `release ${kept.release.slice(0, 8)}… in it; what is for another purpose needs a study of ` +
        "its own, and the costs of studies add up",
    );
  }
  // Under a promise per person, the study would have been kept.
  if (answers.some(({ study, state }) => study === round.study && state !== "begun")) {
    throw new RoundRefused(
      `this person has sent reports in study ${round.study} that no promise per person covers; ` +
        `release ${hash.slice(0, 8)}… needs a study of its own, and the costs of studies add up`,
    );
  }
  // Whatever study it was for: what was paid for may have left.
  if (payments.some((payment) => payment.release === hash)) {
    throw new RoundRefused(
      `release ${hash.slice(0, 8)}… allows one report or one sequence per person, and this person ` +
        `reported it before`,
    );
  }
}
