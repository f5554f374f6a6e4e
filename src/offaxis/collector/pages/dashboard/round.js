/** One round: the number of reports, means and shares, drift, and the release. */

import { element } from "../shared/dom.js";
import { getOfRelease, getOfRound, getRound } from "./api.js";
import { estimates } from "./estimates.js";
import { learning, teaches } from "./learning.js";
import { releaseParts } from "./release.js";
import { badge, count, counted, short, time } from "./words.js";

const section = (title, ...children) =>
  element("section", { class: "card" }, element("h2", {}, title), ...children);

/** @returns {import("./app.js").View} */
export function roundPage({ role, announce }, name) {
  const summary = element("p", { class: "under" });
  const reports = element("p", { class: "big", id: "reports" });
  const retention = element("p", { class: "small" });
  const period = element("p", { class: "small" });
  const drift = element("div", {}, element("p", {}, "Loading…"));
  const means = estimates();
  const top = element("div", { class: "grid two" },
    section("Reports", reports, retention, period), section("Fit to the public vectors", drift));
  const release = element("div");
  const learnt = learning(name);
  const learntPart = section("Learning", learnt.node);
  learntPart.hidden = true;
  let lastCount = null;
  let access = null;

  async function firstLoad(document) {
    const card = await getOfRelease(document.release, "card");
    release.replaceChildren(...await releaseParts(card));
    const averaged = card.report.can_decode_mean || card.report.symbols !== null;
    if (role !== "analyst") {
      const message = `Means and drift require the role analyst; this token's role is ${role}.`;
      means.node.replaceChildren(element("p", {}, message));
      drift.replaceChildren(element("p", {}, message));
    } else if (!averaged) {
      means.node.replaceChildren(element("p", {},
        "This release does not support means. Export the reports to decode them one by one."));
    }
    const taught = role === "analyst" && teaches(card);
    learntPart.hidden = !taught;
    return { analyst: role === "analyst", averaged, taught };
  }

  function showRound(round) {
    const { document, state, closed_at: closedAt } = round;
    const link = element("a", { href: `#/releases/${document.release}` },
      `release ${short(document.release)}`);
    const position = `study ${document.study}, round ${document.number}`;
    summary.replaceChildren(badge(state), position, link);
    const hidden = round.reports === undefined;
    reports.textContent = hidden ? "not shown" : count(round.reports);
    retention.textContent = hidden
      ? "Counts require the role analyst or admin."
      : `stored${state === "open" ? " so far" : ""}, one per device. Reports are deleted `
        + `${counted(document.keep_days, "day")} after the round ends; means are kept, also those of `
        + "groups with few reports.";
    const ends = closedAt ?? document.closes;
    const early = closedAt ? " (closed early)" : "";
    period.replaceChildren("Opens ", time(document.opens), ", closes ", time(ends), early, ".");
  }

  return {
    title: `Round ${name}`,
    parts: [summary, top, learntPart, section("Estimates", means.node), release],
    async refresh() {
      const round = await getRound(name);
      access ??= await firstLoad(round.document);
      showRound(round);
      if (round.reports === lastCount && lastCount !== null) return;
      if (access.analyst) {
        const [totals, fit] = await Promise.all([
          access.averaged ? getOfRound(name, "means") : null, getOfRound(name, "drift")]);
        if (totals) means.update(totals);
        if (access.taught) await learnt.update();
        drift.replaceChildren(fitBadge(fit), element("p", {}, fit.summary));
      }
      // Set last, so that a refresh that failed halfway is repeated.
      lastCount = round.reports ?? null;
      if (lastCount !== null) announce(`${counted(lastCount, "report")} so far.`);
    },
  };
}

function fitBadge({ warning, p_value: p }) {
  if (p === null) return badge("closed", "no result yet");
  return warning ? badge("bad", "drift detected") : badge("good", "no drift found");
}
