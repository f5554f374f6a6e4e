/**
 * Sending kept reports until the collector accepts them or rejects them for good.
 *
 * The wait after attempt n is uniform on [0, 30 s · 2^n], at most six hours in total, and is added
 * to the collector's Retry-After. It starts at zero so that devices that failed together do not
 * return together.
 */

import { Entropy } from "../entropy.js";
import { Unreachable } from "../errors.js";
import { toHex } from "../webcrypto.js";
import { LONGEST_WAIT, isDue } from "./outbox.js";

const FIRST_WAIT = 30_000;
const DOUBLINGS = 20;
const ACCEPTED = [200, 201];
const GONE = [200, 204, 404];
const FINAL = [409, 410, 422];

/** Return a uniform random time below a ceiling. */
export const uniform = (ceiling) => (Number(new Entropy().integer(53)) / 2 ** 53) * ceiling;

/** Return the ms until the next attempt, given the number of attempts before the last. */
function backoff(attempts, retryAfter) {
  const ceiling = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(attempts, DOUBLINGS));
  return Math.min(LONGEST_WAIT, Math.min(retryAfter ?? 0, LONGEST_WAIT / 2) + uniform(ceiling));
}

/** Send what is due, or every queued report; return the rounds that were attempted. */
export async function deliver(outbox, transport, atOnce) {
  const attempted = new Set();
  for (const entry of await outbox.entries()) {
    const ready = isDue(entry) || (atOnce && entry.state === "queued");
    if (ready && (await outbox.claim(entry, transport.lease))) {
      await exchange(entry, outbox, transport);
      attempted.add(entry.round);
    }
  }
  return attempted;
}

async function exchange(entry, outbox, transport) {
  let response;
  try {
    response = await request(entry, transport);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    await outbox.settle(entry, entry.state, error.message, backoff(entry.attempts));
    return;
  }
  const state = nextState(entry, response);
  const problem = response.status < 300 ? "" : response.message;
  const wait = state === entry.state ? backoff(entry.attempts, response.retryAfter) : 0;
  await outbox.settle(entry, state, problem, wait);
}

function request(entry, transport) {
  const path = `/v1/rounds/${entry.round}/reports/${toHex(entry.id)}`;
  if (entry.state === "withdrawing") return transport.request("DELETE", path);
  const headers = { "Content-Type": "application/octet-stream" };
  if (entry.group !== null) headers["Offaxis-Group"] = entry.group;
  return transport.request("PUT", path, { body: entry.report, headers });
}

/**
 * Return an entry's state after a response; the same state means that it is tried again.
 *
 * A collector that lies here loses a report, or gets the same bytes again.
 */
function nextState(entry, response) {
  const final = FINAL.includes(response.status) && response.problemType !== "not-open";
  if (entry.state === "withdrawing") {
    if (GONE.includes(response.status)) return "withdrawn";
    return final ? "sent" : entry.state;
  }
  if (ACCEPTED.includes(response.status)) return "sent";
  return final ? "refused" : entry.state;
}
