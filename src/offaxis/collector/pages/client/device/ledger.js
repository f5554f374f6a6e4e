/** Limits on the total cost of a person's reports, overall and within any period of time. */

import { BudgetExceeded, InvalidInput, shown } from "../errors.js";
import { Fraction, exact, exactEpsilon } from "../fraction.js";

const ZERO = new Fraction(0n);

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

  /** The smallest limit: the default limit for one report. */
  get smallest() {
    return this.limits.map((limit) => limit.epsilon).reduce((a, b) => (a.compare(b) <= 0 ? a : b));
  }

  /** Throw BudgetExceeded if one more report at time `now` (ms) would exceed a limit. */
  check(payments, epsilon, now) {
    for (const limit of this.limits) {
      const since = limit.seconds === null ? -Infinity : now - 1000 * limit.seconds;
      const paid = total(payments.filter(({ paidAt }) => paidAt > since));
      if (paid.plus(exact(epsilon, "epsilon")).compare(limit.epsilon) > 0) {
        const period = limit.seconds === null ? "in all" : `in any ${limit.seconds} seconds`;
        throw new BudgetExceeded(
          `one more report of ε = ${epsilon} would exceed the limit of ε = ${limit.epsilon} ` +
            `${period}; nothing was paid and nothing may be reported`,
        );
      }
    }
  }
}
