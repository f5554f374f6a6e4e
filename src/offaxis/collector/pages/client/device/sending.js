/**
 * Sending what a device has kept, until the collector takes it or says that it never will.
 *
 * Waiting grows: the n-th try comes after a time drawn uniformly up to 30 s · 2^n, at most six
 * hours, behind what the collector asked for. Uniform from zero, so that devices that failed
 * together do not come back together.
 */

import { Entropy } from "../entropy.js";
import { Unreachable } from "../errors.js";
import { toHex } from "../webcrypto.js";
import { LONGEST_WAIT, isDue } from "./outbox.js";

const FIRST_WAIT = 30_000;
const DOUBLINGS = 20;
const TAKEN = [200, 201];
const GONE = [200, 204, 404];
const FINAL = [409, 410, 422];

/** Return a uniform random time below a ceiling. */
export const uniform = (ceiling) => (Number(new Entropy().integer(53)) / 2 ** 53) * ceiling;

/** Return milliseconds until the next try, after so many before the last one. */
function backoff(attempts, asked) {
  const ceiling = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(attempts, DOUBLINGS));
  return Math.min(LONGEST_WAIT, Math.min(asked ?? 0, LONGEST_WAIT / 2) + uniform(ceiling));
}

/** Send what is due, or every report that waits; return the rounds that were tried. */
export async function deliver(outbox, transport, atOnce) {
  const tried = new Set();
  for (const entry of await outbox.entries()) {
    const ready = isDue(entry) || (atOnce && entry.state === "queued");
    if (ready && (await outbox.claim(entry, transport.lease))) {
      await exchange(entry, outbox, transport);
      tried.add(entry.round);
    }
  }
  return tried;
}

async function exchange(entry, outbox, transport) {
  let answer;
  try {
    answer = await ask(entry, transport);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    await outbox.settle(entry, entry.state, error.message, backoff(entry.attempts));
    return;
  }
  const state = after(entry, answer);
  const problem = answer.status < 300 ? "" : answer.words;
  const wait = state === entry.state ? backoff(entry.attempts, answer.retryAfter) : 0;
  await outbox.settle(entry, state, problem, wait);
}

function ask(entry, transport) {
  const path = `/v1/rounds/${entry.round}/reports/${toHex(entry.id)}`;
  if (entry.state === "withdrawing") return transport.ask("DELETE", path);
  const headers = { "Content-Type": "application/octet-stream" };
  if (entry.group !== null) headers["Offaxis-Group"] = entry.group;
  return transport.ask("PUT", path, { body: entry.report, headers });
}

/**
 * Return what an entry becomes by an answer; what it was, if it is to be tried again.
 *
 * A collector that lies here loses a report, or gets the same bytes again.
 */
function after(entry, answer) {
  const final = FINAL.includes(answer.status) && answer.problemType !== "not-open";
  if (entry.state === "withdrawing") {
    if (GONE.includes(answer.status)) return "withdrawn";
    return final ? "sent" : entry.state;
  }
  if (TAKEN.includes(answer.status)) return "sent";
  return final ? "refused" : entry.state;
}
