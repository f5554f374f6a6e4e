/** Every error a page can meet. Messages name the value that was wrong and say the fix. */

/** Base of all errors thrown by offaxis on purpose. */
export class OffaxisError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** A vector or a parameter cannot be used; nothing was released. */
export class InvalidInput extends OffaxisError {}

/** A release file is damaged, of another version, or promises what it does not keep. */
export class InvalidRelease extends OffaxisError {}

/** A release file is in order, but uses what the browser has no code for. */
export class Unsupported extends InvalidRelease {}

/** Bytes that are not a report of this release. */
export class InvalidReport extends OffaxisError {}

/** A round, a key or a signature that is not what it should be; nothing was done. */
export class InvalidDocument extends OffaxisError {}

/** A release promises less than the page asks for; nothing was released. */
export class LimitExceeded extends OffaxisError {}

/** A round asks for what this device does not give; nothing was paid and nothing sent. */
export class RoundRefused extends OffaxisError {}

/** A collector could not be reached, or did not answer as one does. */
export class Unreachable extends OffaxisError {}

/** A person's budget does not allow another report; nothing was paid and nothing released. */
export class BudgetExceeded extends OffaxisError {}

/** The browser gave no randomness; nothing was released and nothing falls back. */
export class EntropyFailure extends OffaxisError {}

/** What a message may show of an untrusted value: a short line of ASCII, nothing that steers. */
export function shown(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.slice(0, 60).replace(/[^ -~]/g, "?");
}
