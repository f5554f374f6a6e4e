/** offaxis in the browser: load and verify a release, check its guarantee, make reports. */

export { Device } from "./device/device.js";
export { readRound, verifyRelease, verifyRound } from "./documents.js";
export {
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
