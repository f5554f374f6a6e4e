/** All errors that a page can meet. Messages state the invalid value and the fix. */

/** Base class of all errors of offaxis. */
export class OffaxisError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** A vector or a parameter is invalid; nothing was released. */
export class InvalidInput extends OffaxisError {}

/** A release file is damaged, has another version, or claims a guarantee that it does not have. */
export class InvalidRelease extends OffaxisError {}

/** A release file is valid, but uses a part that the browser's client does not implement. */
export class Unsupported extends InvalidRelease {}

/** A report of this release does not decode to a vector without a bias of unknown size. */
export class BiasedDecoder extends OffaxisError {}

/** Bytes that are not a report of this release. */
export class InvalidReport extends OffaxisError {}

/** A round, a key or a signature is invalid; nothing was done. */
export class InvalidDocument extends OffaxisError {}

/** The guarantee of a release is weaker than the page requires; nothing was released. */
export class LimitExceeded extends OffaxisError {}

/** This device does not accept a round; nothing was paid and nothing sent. */
export class RoundRefused extends OffaxisError {}

/** A collector could not be reached, or did not respond as specified. */
export class Unreachable extends OffaxisError {}

/** Another report would exceed a person's budget; nothing was paid and nothing released. */
export class BudgetExceeded extends OffaxisError {}

/** The browser provided no randomness; nothing was released, and there is no fallback. */
export class EntropyFailure extends OffaxisError {}

/** Return an untrusted value for a message: a short line of printable ASCII. */
export function shown(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.slice(0, 60).replace(/[^ -~]/g, "?");
}
