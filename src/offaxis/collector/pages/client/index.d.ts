/** Base of all errors thrown by offaxis on purpose. */
export class OffaxisError extends Error {}
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

export type Unit = "item" | "user";

/** What one report promises, computed from the randomizer's parameters. */
export interface Guarantee {
  /** Exact, "p" or "p/q". */
  readonly epsilon: string;
  readonly delta: string;
  readonly pure: true;
  readonly unit: Unit;
  readonly relation: string;
}

/** A number, read exactly: a float stands for its shortest decimal, a text for "p/q" or a decimal. */
export type Exact = number | bigint | string;

/** The most that one report may promise away. */
export interface Limit {
  epsilon: Exact;
  /** 0 unless given: pure. */
  delta?: Exact;
  /** "item" unless given. */
  unit?: Unit;
}

/** Where a release came from, as its file says. */
export interface Provenance {
  readonly model: { readonly kind: string; readonly name: string; readonly sha256: string } | null;
  readonly public: { readonly count: number; readonly dim: number; readonly sha256: string };
  readonly settings: { readonly [name: string]: number | string };
  readonly statement: string;
}

/** A private vector: finite numbers. */
export type Vector = readonly number[] | Float64Array | Float32Array;

/** A frozen release; made by loadRelease() only. */
export class Release {
  private constructor();
  /** SHA-256 of the release's content, in hexadecimal: its identity. */
  readonly hash: string;
  readonly guarantee: Guarantee;
  /** The randomizer. */
  readonly kind: "laplace" | "privunit2" | "privunitg" | "response";
  /** Numbers of a private vector. */
  readonly inputDim: number;
  /** Numbers of a decoded vector. */
  readonly outputDim: number;
  /** Bytes of one report, the same for every vector. */
  readonly reportSize: number;
  /** Whether a mean over people can be decoded without bias. */
  readonly givesMeans: boolean;
  readonly provenance: Provenance;
  /** The public mean, as well as the release knows it: for who has no vector to report. */
  readonly publicMean: Float64Array;
  /** Throw LimitExceeded unless one report promises at least what the page asks for. */
  checkLimit(limit: Limit): void;
  /**
   * Turn a private vector into a report that may leave the device. Every call draws fresh
   * randomness and spends the budget again: call it once a vector.
   */
  privatize(vector: Vector): Promise<Uint8Array>;
  /** Read a report strictly and return what the randomizer let through, undecoded. */
  observe(report: Uint8Array): Promise<Float64Array>;
  /** Turn one report into a vector. */
  decode(report: Uint8Array): Promise<Float64Array>;
}

/** A budget for all reports together, ever or within any `seconds`. */
export interface BudgetLimit {
  epsilon: Exact;
  /** Unless given: for ever. */
  seconds?: number;
}

export interface DeviceOptions {
  /** The collector's address. */
  url: string;
  /** The publisher's public key, 64 hexadecimal digits: its rounds are answered. */
  publisher?: string;
  /** Hash of the only release that is reported. One of the two must be given. */
  release?: string;
  /** For all reports together; each must hold. */
  limits: readonly BudgetLimit[];
  /** The most that one report may promise away: by default the smallest limit. */
  epsilon?: Exact;
  /** "item" unless given. Of a release for users a single round is answered, ever. */
  unit?: Unit;
  /** By which the collector knows its devices. */
  token?: string;
  /** Name of the database of this origin, "offaxis" unless given. */
  state?: string;
  /** First sends wait a random time of up to so many seconds, an hour unless given. */
  spread?: number;
  /** Seconds for one exchange with the collector, 60 unless given. */
  patience?: number;
}

/** A round that the device believes; `state` is only the collector's word. */
export interface Offer {
  readonly round: Round;
  readonly state: string;
}

/** A round that was answered, or begun to be. */
export interface Entry {
  readonly round: string;
  readonly study: string;
  readonly number: number;
  readonly release: string;
  readonly group: string | null;
  /** Under which the collector knows the report, 64 hexadecimal digits. */
  readonly id: string;
  /** Null while it is only begun. */
  readonly report: Uint8Array | null;
  readonly state: "begun" | "queued" | "sent" | "refused" | "withdrawing" | "withdrawn";
  /** Times its bytes were about to be sent. */
  readonly attempts: number;
  /** Not to be sent before this time. */
  readonly nextTry: Date;
  /** Why it was not taken, the last time. */
  readonly problem: string;
}

/** A device that answers rounds: it verifies, pays, reports once, and sends until it is taken. */
export class Device {
  private constructor();
  /** Open this browser's device, which is made the first time. */
  static open(options: DeviceOptions): Promise<Device>;
  /** The rounds that the collector offers and this device believes. */
  rounds(): Promise<Offer[]>;
  /**
   * Answer a round, once: verify it, pay, make the report and keep it to be sent. What cannot be
   * used as a vector becomes a report of the public mean, so that nobody learns of it.
   */
  report(
    round: string,
    vector: Vector | null | (() => Vector | null | Promise<Vector | null>),
    options?: { group?: string | null },
  ): Promise<Entry>;
  /** Send what is due; `atOnce` sends all that waits, and shows when it was made. */
  send(options?: { atOnce?: boolean }): Promise<Entry[]>;
  /** Send now, every so many seconds and when the browser is online again; returns how to stop. */
  keepSending(options?: { every?: number }): () => void;
  /** Ask for a report back; what was paid stays paid. */
  withdraw(round: string): Promise<Entry>;
  /** Every round that was answered or begun. */
  status(): Promise<Entry[]>;
  /** Σε of all reports, "p" or "p/q", and how many there were. */
  spent(): Promise<{ epsilon: string; reports: number }>;
  /** Close the state. */
  close(): void;
}

/** Read a release from untrusted bytes; `expect` pins the hash it must have. */
export function loadRelease(
  bytes: ArrayBuffer | Uint8Array,
  options?: { expect?: string },
): Promise<Release>;

/** A time in which each device may send one report of one release. */
export interface Round {
  readonly name: string;
  readonly study: string;
  readonly number: number;
  /** Hash of the release that is asked for. */
  readonly release: string;
  readonly opens: Date;
  readonly closes: Date;
  readonly groups: readonly string[];
  readonly keepDays: number;
  /** The text that is signed. */
  readonly document: string;
}

/** Read an untrusted round strictly: the bytes of its document, or the object a JSON held. */
export function readRound(document: Uint8Array | object): Round;

/** Throw InvalidDocument unless the publisher's key (64 hexadecimal digits) signed this release. */
export function verifyRelease(
  publisher: string,
  hash: string,
  signature: Uint8Array,
): Promise<void>;

/** Throw InvalidDocument unless the publisher's key (64 hexadecimal digits) signed this round. */
export function verifyRound(publisher: string, round: Round, signature: Uint8Array): Promise<void>;
