/**
 * Sending: this browser as a device of the collector that serves the page.
 *
 * The publisher's key and a device's token stand behind the # of the address; without them the page
 * has nothing to believe and offers nothing.
 */

import { Device } from "../client/index.js";
import { hexOf } from "./columns.js";
import { KINDS } from "./shelf.js";

const [, RECOMMENDED] = KINDS;
const COLLECTOR = new URL("../..", import.meta.url).href;
const at = (id) => document.getElementById(id);

/** Offer to answer the collector's round of a recommended release, if it has one. */
export async function offerSending(page) {
  const named = new URLSearchParams(location.hash.slice(1));
  const [publisher, token] = [named.get("publisher"), named.get("token")];
  if (!publisher || !token) return;
  at("sending").hidden = false;
  try {
    await offer(page, publisher, token);
  } catch (error) {
    at("round").textContent = `The collector offers nothing that this page believes: ${error.message}.`;
    at("send").disabled = true;
  }
}

async function offer(page, publisher, token) {
  const budgets = new Map(page.shelf.rows.map((row) => [row[RECOMMENDED].hash, row.epsilon]));
  const highest = page.shelf.rows.at(-1).epsilon;
  const device = await Device.open({
    url: COLLECTOR,
    publisher,
    token,
    limits: [{ epsilon: highest }],
    state: `offaxis-demo-${publisher.slice(0, 16)}`,
    spread: 0,
  });
  const offers = await device.rounds();
  const found = offers.find(({ round, state }) => state === "open" && budgets.has(round.release));
  if (!found) throw new Error("there is no open round of a recommended release");
  const { round } = found;
  at("round").textContent =
    `Round ${round.name} asks everybody for one report by the recommended release at ε = ` +
    `${budgets.get(round.release)}. This browser verifies who signed it, pays, makes a fresh report, and ` +
    "sends it. It answers the round once.";
  show((await device.status()).find((entry) => entry.round === round.name));
  at("send").addEventListener("click", () => answer(device, round, page));
}

async function answer(device, round, page) {
  if (!page.vector) {
    at("sent").textContent = "Draw first.";
    return;
  }
  at("send").disabled = true;
  try {
    const kept = await device.report(round.name, page.vector);
    const [entry] = await device.send({ atOnce: true });
    show(entry ?? kept);
  } catch (error) {
    at("sent").textContent = `Nothing was sent: ${error.message}.`;
    at("send").disabled = false;
  }
}

/** Say what became of an answered round. */
function show(entry) {
  if (!entry?.report) return;
  const fates = {
    sent: "The collector took it.",
    refused: `The collector refused it: ${entry.problem}.`,
    queued: "It is paid and waits for the collector; press again to try once more, with the same bytes.",
  };
  at("sent").textContent = `Report ${hexOf(entry.report)}: ${fates[entry.state] ?? entry.state}`;
  at("send").disabled = entry.state !== "queued";
}
