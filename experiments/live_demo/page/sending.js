/**
 * Sending: this browser as a device of the collector that serves the page.
 *
 * The address contains the publisher's key and a device's token after its #. Without them the page
 * trusts no round and does not offer to send.
 */

import { Device } from "../client/index.js";
import { KINDS } from "./assets.js";
import { hexOf } from "./columns.js";

const [, RECOMMENDED] = KINDS;
const COLLECTOR = new URL("../..", import.meta.url).href;
const at = (id) => document.getElementById(id);

/** Offer to answer the collector's open round of a recommended release, if there is one. */
export async function offerSending(page) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const [publisher, token] = [parameters.get("publisher"), parameters.get("token")];
  if (!publisher || !token) return;
  at("sending").hidden = false;
  try {
    await offer(page, publisher, token);
  } catch (error) {
    at("round").textContent = `The collector has no round that this page trusts: ${error.message}.`;
    at("send").disabled = true;
  }
}

async function offer(page, publisher, token) {
  const budgets = new Map(page.assets.rows.map((row) => [row[RECOMMENDED].hash, row.epsilon]));
  const highest = page.assets.rows.at(-1).epsilon;
  const device = await Device.open({
    url: COLLECTOR,
    publisher,
    token,
    limits: [{ epsilon: highest }],
    state: `offaxis-demo-${publisher.slice(0, 16)}`,
    spread: 0,
  });
  const offers = await device.rounds();
  const open = offers.find(({ round, state }) => state === "open" && budgets.has(round.release));
  if (!open) throw new Error("no round of a recommended release is open");
  const { round } = open;
  at("round").textContent =
    `Round ${round.name} requests one report per device, by the recommended release at ε = ` +
    `${budgets.get(round.release)}. This browser verifies its signature, pays, makes a fresh report, and ` +
    "sends it. It answers the round once.";
  show((await device.status()).find((entry) => entry.round === round.name));
  at("send").addEventListener("click", () => answer(device, round, page));
}

async function answer(device, round, page) {
  if (!page.vector) {
    at("sent").textContent = "Draw a digit first.";
    return;
  }
  at("send").disabled = true;
  try {
    const queued = await device.report(round.name, page.vector);
    const [entry] = await device.send({ atOnce: true });
    show(entry ?? queued, queued.report);
  } catch (error) {
    at("sent").textContent = `Nothing was sent: ${error.message}.`;
    at("send").disabled = false;
  }
}

/** Show the state of an answered round. The device forgets the bytes of a report that was sent. */
function show(entry, report = entry?.report) {
  if (!entry || entry.state === "begun") return;
  const messages = {
    sent: "The collector accepted it.",
    refused: `The collector refused it: ${entry.problem}.`,
    queued: "It is paid for and waits for the collector; press again to resend the same bytes.",
  };
  const which = report ? `Report ${hexOf(report)}` : "Your report";
  at("sent").textContent = `${which}: ${messages[entry.state] ?? entry.state}`;
  at("send").disabled = entry.state !== "queued";
}
