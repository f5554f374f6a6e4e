/** offaxis in the browser: load and verify releases, check guarantees, make and send reports. */

export { Device } from "./device/device.js";
export { readRound, verifyRelease, verifyRound } from "./documents.js";
export {
  BiasedDecoder,
  BudgetExceeded,
  EntropyFailure,
  InvalidDocument,
  InvalidInput,
  InvalidRelease,
  InvalidReport,
  LimitExceeded,
  OffaxisError,
  RoundRefused,
  Unreachable,
  Unsupported,
} from "./errors.js";
export { Release, loadRelease } from "./release.js";
