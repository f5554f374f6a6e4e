/** One round: how many reports, what they say on average, and whether they fit the public vectors. */

import { element } from "../shared/dom.js";
import { askOfRelease, askOfRound, askRound } from "./api.js";
import { estimates } from "./estimates.js";
import { releaseParts } from "./release.js";
import { badge, count, counted, short, time } from "./words.js";

/** @returns {import("./app.js").View} */
export function roundPage({ role, say }, name) {
  const under = element("p", { class: "under" });
  const reports = element("p", { class: "big", id: "reports" });
  const words = element("p", { class: "small" });
  const times = element("p", { class: "small" });
  const drift = element("div", {}, element("p", {}, "Asking the collector…"));
  const means = estimates();
  const heart = element("section", { class: "card" }, element("h2", {}, "What people report"), means.node);
  const fit = element("section", { class: "card" }, element("h2", {}, "Do they fit the public vectors?"), drift);
  const top = element("div", { class: "grid two" },
    element("section", { class: "card" }, element("h2", {}, "Reports"), reports, words, times), fit);
  const below = element("div");
  let last = null;

  async function first(document) {
    const card = await askOfRelease(document.release, "card");
    below.replaceChildren(...await releaseParts(card));
    if (role !== "analyst") {
      const only = `Means and drift are for analysts; this token's role is ${role}.`;
      means.node.replaceChildren(element("p", {}, only));
      drift.replaceChildren(element("p", {}, only));
    } else if (!card.report.can_decode_mean && card.report.symbols === null) {
      means.node.replaceChildren(element("p", {}, "Reports of this release cannot be averaged: each is decoded by itself. Export them to do so."));
    }
    return { document, told: role === "analyst", averaged: card.report.can_decode_mean || card.report.symbols !== null };
  }

  let known = null;
  return {
    title: `Round ${name}`,
    parts: [under, top, heart, below],
    async refresh() {
      const round = await askRound(name);
      known ??= await first(round.document);
      head(round);
      if (round.reports === last && last !== null) return;
      if (known.told) {
        const [found, verdict] = await Promise.all([
          known.averaged ? askOfRound(name, "means") : null, askOfRound(name, "drift")]);
        if (found) means.update(found);
        drift.replaceChildren(verdictOf(verdict), element("p", {}, verdict.summary));
      }
      // Only now: what failed half way is asked for again.
      last = round.reports ?? null;
      if (last !== null) say(`${counted(last, "report")} so far.`);
    },
  };

  function head(round) {
    const { document, state, closed_at: closedAt } = round;
    const release = element("a", { href: `#/releases/${document.release}` }, `release ${short(document.release)}`);
    under.replaceChildren(badge(state), `study ${document.study}, number ${document.number}`, release);
    reports.textContent = round.reports === undefined ? "not shown" : count(round.reports);
    words.textContent = round.reports === undefined
      ? "Counts are for analysts and admins."
      : `stored${state === "open" ? " so far" : ""}, one a device. They are deleted ${counted(document.keep_days, "day")} after the round ends; means stay.`;
    const ends = closedAt ?? document.closes;
    times.replaceChildren("Opens ", time(document.opens), ", closes ", time(ends), closedAt ? " (closed early)" : "", ".");
  }
}

function verdictOf({ warning, p_value: p }) {
  if (p === null) return badge("closed", "nothing to say yet");
  return warning ? badge("bad", "they do not fit") : badge("good", "they fit");
}
