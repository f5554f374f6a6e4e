/** Reports: the bytes that leave a device (docs/report-format.md). */

import { InvalidReport } from "./errors.js";

const MAGIC = [0x4f, 0x58]; // "OX"
const VERSION = 1;
export const HEADER_SIZE = 12;

/** Prepend the header of a release to a payload. */
export function frame(payload, wireId, hash) {
  const report = new Uint8Array(HEADER_SIZE + payload.length);
  report.set(header(wireId, hash));
  report.set(payload, HEADER_SIZE);
  return report;
}

/** Check a report strictly and return a copy of its payload. */
export function unframe(report, wireId, hash, payloadSize) {
  if (!(report instanceof Uint8Array)) throw new InvalidReport("a report must be a Uint8Array");
  const expected = header(wireId, hash);
  const size = HEADER_SIZE + payloadSize;
  if (report.length !== size || expected.some((byte, i) => report[i] !== byte)) {
    throw new InvalidReport(`the report ${fault(report, expected, size)}`);
  }
  return report.slice(HEADER_SIZE);
}

function header(wireId, hash) {
  const start = Array.from({ length: 8 }, (_, i) => parseInt(hash.slice(2 * i, 2 * i + 2), 16));
  return Uint8Array.from([...MAGIC, VERSION, wireId, ...start]);
}

function fault(report, expected, size) {
  if (report.length < HEADER_SIZE || MAGIC.some((byte, i) => report[i] !== byte)) {
    return "is not an offaxis report (it does not start with the magic bytes 'OX')";
  }
  if (report[2] !== VERSION) {
    return `has format version ${report[2]}; this client reads version ${VERSION}`;
  }
  if (expected.slice(4).some((byte, i) => report[4 + i] !== byte)) {
    return "belongs to another release";
  }
  if (report[3] !== expected[3]) {
    return `has randomizer id ${report[3]}, this release writes ${expected[3]}`;
  }
  return `has ${report.length} bytes, a report of this release has ${size}`;
}
