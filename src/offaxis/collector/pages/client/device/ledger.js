/** Limits on the total cost of a person's reports, overall and within any period of time. */

import { BudgetExceeded, InvalidInput, shown } from "../errors.js";
import { Fraction, exact, exactEpsilon } from "../fraction.js";

const ZERO = new Fraction(0n);

/** The time of payments for reports that are made later: before every period. */
export const RESERVED = -1;

/** Return Σε of payments, exactly. */
export const total = (payments) =>
  payments.reduce((sum, { epsilon }) => sum.plus(exact(epsilon, "epsilon")), ZERO);

/** Limits that must all hold. */
export class Budget {
  constructor(limits) {
    if (!Array.isArray(limits) || !limits.length) {
      throw new InvalidInput("a device needs at least one limit, for example limits: [{epsilon: 8}]");
    }
    this.limits = limits.map(({ epsilon, seconds = null }) => {
      if (seconds !== null && !(Number.isFinite(seconds) && seconds > 0)) {
        throw new InvalidInput(`seconds must be positive, got seconds=${shown(seconds)}`);
      }
      return { epsilon: exactEpsilon(epsilon), seconds };
    });
  }

  /**
   * The default limit for one report or sequence: the smallest limit in all. Limits per period are
   * left to the payments, which count a sequence by the answers drawn and reported in each period.
   */
  get largestReport() {
    const inAll = this.limits.filter(({ seconds }) => seconds === null);
    return (inAll.length ? inAll : this.limits)
      .map(({ epsilon }) => epsilon)
      .reduce((a, b) => (a.compare(b) <= 0 ? a : b));
  }

  /**
   * Throw BudgetExceeded if one more payment at time `now` (ms) would exceed a limit; `reserved` are
   * payments for later reports.
   */
  check(payments, epsilon, now, reserved = []) {
    const limit = exceeded(this.limits, [...payments, ...reserved], epsilon, now);
    refuse(limit, epsilon, limit?.seconds === null ? 1 + reserved.length : 1);
  }

  /** The same for limits per period only: for what was paid for before and is reported now. */
  checkNow(payments, epsilon, now) {
    refuse(exceeded(this.#periods, payments, epsilon, now), epsilon);
  }

  /** Whether one more payment stays within all limits. */
  admits(payments, epsilon, now) {
    return !exceeded(this.limits, payments, epsilon, now);
  }

  /**
   * Whether a reserved payment may be used: what is still reserved does not count, so that a limit
   * that was set later is kept, too.
   */
  admitsReserved(payments, epsilon, now) {
    const used = payments.filter(({ paidAt }) => paidAt !== RESERVED);
    return !exceeded(this.limits, used, epsilon, now);
  }

  get #periods() {
    return this.limits.filter((limit) => limit.seconds !== null);
  }
}

/** Return the first limit that one more payment would exceed, if there is one. */
function exceeded(limits, payments, epsilon, now) {
  return limits.find((limit) => {
    const counts = ({ paidAt }) =>
      limit.seconds === null || (paidAt !== RESERVED && paidAt > now - 1000 * limit.seconds);
    const paid = total(payments.filter(counts));
    return paid.plus(exact(epsilon, "epsilon")).compare(limit.epsilon) > 0;
  });
}

function refuse(limit, epsilon, count = 1) {
  if (!limit) return;
  const reports = count === 1 ? "one more report" : `${count} more reports`;
  const period = limit.seconds === null ? "in all" : `in any ${limit.seconds} seconds`;
  throw new BudgetExceeded(
    `${reports} of ε = ${epsilon} would exceed the limit of ε = ${limit.epsilon} ` +
      `${period}; nothing was paid and nothing may be reported`,
  );
}
