/** Base class of all errors of offaxis. */
export class OffaxisError extends Error {}
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

export type Unit = "item" | "user";

/** The guarantee of one report, or of a sequence, computed from the randomizer's parameters. */
export interface Guarantee {
  /** Exact, "p" or "p/q". */
  readonly epsilon: string;
  readonly delta: string;
  readonly pure: true;
  readonly unit: Unit;
  readonly relation: string;
}

/** A number, read exactly: a float as its shortest decimal, a string as "p/q" or a decimal. */
export type Exact = number | bigint | string;

/** The largest privacy cost of one report. */
export interface Limit {
  epsilon: Exact;
  /** Default 0: pure. */
  delta?: Exact;
  /** Default "item". */
  unit?: Unit;
}

/** The origin of a release, as its file states it. */
export interface Provenance {
  readonly model: { readonly kind: string; readonly name: string; readonly sha256: string } | null;
  readonly public: { readonly count: number; readonly dim: number; readonly sha256: string };
  readonly settings: { readonly [name: string]: number | string };
  readonly statement: string;
}

/** A private vector: finite numbers. */
export type Vector = readonly number[] | Float64Array | Float32Array;

/** A private answer of a person: a class by its name or index, a number, or null for none. */
export type Answer = string | number | null;

/** A person's answers to a release of pairs: the only one, or one for every name that is asked. */
export type Answers = Answer | { readonly [name: string]: Answer };

/** What a release of pairs asks people besides their vector. */
export type Question =
  | {
      readonly kind: "classes";
      readonly name: string;
      readonly names: readonly string[];
      readonly optional: boolean;
    }
  | {
      readonly kind: "number";
      readonly name: string;
      readonly low: number;
      readonly high: number;
      /** Number of equal bins, where the number is counted in bins. */
      readonly bins?: number;
      readonly optional: boolean;
    };

/** A private vector with the person's answers. */
export interface Pair {
  readonly vector: Vector;
  readonly answers: Answers;
}

/** A frozen release; created by loadRelease() only. */
export class Release {
  private constructor();
  /** SHA-256 of the release's content, in hexadecimal; identifies the release. */
  readonly hash: string;
  readonly guarantee: Guarantee;
  /** Kind of the randomizer. */
  readonly kind:
    | "laplace"
    | "privunit2"
    | "privunitg"
    | "response"
    | "subset"
    | "hashing"
    | "memoised-response"
    | "memoised-privunit2";
  /**
   * When a device draws permanent answers: at most `draws` (0: no limit), one every `period`
   * rounds. Null if the release makes single reports.
   */
  readonly sequence: {
    readonly draws: number;
    readonly period: number;
    readonly epsilon: string;
  } | null;
  /** Dimension of a private vector; for pairs, of a row: the vector and one number per answer. */
  readonly inputDim: number;
  /** Dimension of a decoded vector. */
  readonly outputDim: number;
  /** Bytes of one report, the same for every vector. */
  readonly reportSize: number;
  readonly provenance: Provenance;
  /**
   * The public mean, as far as the release contains it; for clients without a vector. For pairs, the
   * row of a zero vector without answers.
   */
  readonly publicMean: Float64Array;
  /** Throw LimitExceeded unless the guarantee of a report, or a sequence, is within the limit. */
  checkLimit(limit: Limit): void;
  /**
   * Turn a private vector into a report that may leave the device; for pairs, a vector with the
   * person's answers as in pair(), or the row that pair() returns. Every call draws fresh randomness
   * and spends the budget again: call it once per vector. A release of sequences is for a Device,
   * which keeps a person's permanent answer.
   */
  privatize(vector: Vector | null, answers?: Answers): Promise<Uint8Array>;
  /** What people are asked; empty for other releases. */
  readonly asked: readonly Question[];
  /**
   * Join a vector and the person's answers to the row that a release of pairs takes; a release of
   * answers alone takes null for the vector. Numbers are
   * clipped to their range. Throws InvalidInput, without the answer, if there is no such answer.
   */
  pair(vector: Vector | null, answers?: Answers): Float64Array;
  /** The names of a model's answers and the symbol of each; null if reports carry no answer. */
  readonly answers: {
    readonly names: readonly string[];
    readonly symbols: readonly number[];
    readonly kept: readonly number[];
  } | null;
  /**
   * Turn a private answer, its index or its name, into a report, without a vector or a model.
   * Every call draws fresh randomness and spends the budget again.
   */
  privatizeAnswer(answer: number | string): Promise<Uint8Array>;
  /** Read a report strictly and return its observation (the randomizer's output), undecoded. */
  observe(report: Uint8Array): Promise<Float64Array>;
  /** Decode one report into a vector; throws BiasedDecoder for pairs, which are for learning. */
  decode(report: Uint8Array): Promise<Float64Array>;
}

/**
 * A budget for all reports together, overall or within any `seconds`. A sequence counts in every
 * period in which it is reported.
 */
export interface BudgetLimit {
  epsilon: Exact;
  /** Default: no period, the limit is on the total. */
  seconds?: number;
}

export interface DeviceOptions {
  /** The collector's address. */
  url: string;
  /** The publisher's public key, 64 hexadecimal digits. Rounds that it signed are answered. */
  publisher?: string;
  /** Hash of the only release to report. `publisher` or `release` is required. */
  release?: string;
  /** Limits on all reports together; each must hold. */
  limits: readonly BudgetLimit[];
  /** The largest privacy cost of one report or sequence. Default: the smallest limit. */
  epsilon?: Exact;
  /**
   * The least unit that a release must have, "item" by default. A release with unit "user" is answered
   * once per study, or as one sequence.
   */
  unit?: Unit;
  /** Authenticates the device to the collector. */
  token?: string;
  /** Name of the database in this origin. Default "offaxis". */
  state?: string;
  /** First sends wait a random time of up to this many seconds. Default 3600. */
  spread?: number;
  /** Seconds for one exchange with the collector. Default 60. */
  patience?: number;
}

/** A round that the device trusts; its `state` is only claimed by the collector. */
export interface Offer {
  readonly round: Round;
  readonly state: string;
}

/** A round that was answered or begun. */
export interface Entry {
  readonly round: string;
  readonly study: string;
  readonly number: number;
  readonly release: string;
  readonly group: string | null;
  /** Identifies the report at the collector, 64 hexadecimal digits. */
  readonly id: string;
  /** The bytes to send while the state is "queued"; null before and after. */
  readonly report: Uint8Array | null;
  readonly state: "begun" | "queued" | "sent" | "refused" | "withdrawing" | "withdrawn";
  /** Number of attempts to send it, counted before its bytes leave. */
  readonly attempts: number;
  /** Earliest time of the next attempt. */
  readonly nextTry: Date;
  /** Why the last attempt failed. */
  readonly problem: string;
}

/** A device that answers rounds: verify, pay, report once, and send until accepted. */
export class Device {
  private constructor();
  /** Open this browser's device; it is created the first time. */
  static open(options: DeviceOptions): Promise<Device>;
  /** Return the collector's rounds that this device trusts. */
  rounds(): Promise<Offer[]>;
  /**
   * Answer a round, once: verify it, pay, make the report and keep it for sending. A release of pairs
   * takes the vector together with the answers. An unusable vector or answer becomes a report of the
   * public mean, so that nobody learns of it. A round of a sequence that draws no permanent answer
   * does not evaluate the vector.
   */
  report(
    round: string,
    vector: Vector | Pair | null | (() => Vector | Pair | null | Promise<Vector | Pair | null>),
    options?: { group?: string | null },
  ): Promise<Entry>;
  /** Send what is due; `atOnce` sends every queued report, which reveals when it was made. */
  send(options?: { atOnce?: boolean }): Promise<Entry[]>;
  /** Send now, every `every` seconds and when online again; return a function that stops it. */
  keepSending(options?: { every?: number }): () => void;
  /** Withdraw a report; its payment stands. */
  withdraw(round: string): Promise<Entry>;
  /** Return every round that was answered or begun. */
  status(): Promise<Entry[]>;
  /** Return Σε of all payments, "p" or "p/q", and their number: one per report or permanent answer. */
  spent(): Promise<{ epsilon: string; reports: number }>;
  /** Close the state. */
  close(): void;
}

/** Read a release from untrusted bytes; `expect` pins the hash it must have. */
export function loadRelease(
  bytes: ArrayBuffer | Uint8Array,
  options?: { expect?: string },
): Promise<Release>;

/** A period in which each device may send one report of one release. */
export interface Round {
  readonly name: string;
  readonly study: string;
  readonly number: number;
  /** Hash of the release to report. */
  readonly release: string;
  readonly opens: Date;
  readonly closes: Date;
  readonly groups: readonly string[];
  readonly keepDays: number;
  /** The signed text. */
  readonly document: string;
}

/** Read an untrusted round strictly: the bytes of its document, or an object parsed from JSON. */
export function readRound(document: Uint8Array | object): Round;

/** Throw InvalidDocument unless the publisher's key (64 hexadecimal digits) signed this release. */
export function verifyRelease(
  publisher: string,
  hash: string,
  signature: Uint8Array,
): Promise<void>;

/** Throw InvalidDocument unless the publisher's key (64 hexadecimal digits) signed this round. */
export function verifyRound(publisher: string, round: Round, signature: Uint8Array): Promise<void>;
