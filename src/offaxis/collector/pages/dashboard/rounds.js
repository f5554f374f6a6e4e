/** The list of studies and their rounds, with counts that grow as reports arrive. */

import { element } from "../shared/dom.js";
import { getJson, getRound } from "./api.js";
import { badge, count, counted, time } from "./words.js";

const MOST_COUNTED = 12;

/** @returns {import("./app.js").View} */
export function roundsPage({ role, announce }) {
  const list = element("div", {}, element("p", {}, "Loading…"));
  const cards = new Map();
  const counts = new Map();

  async function countReports(rounds) {
    if (role === "device") return;
    // The count of a closed round is final. Newest first: an old collector may have many rounds.
    const pending = rounds.filter(
      (round) => round.state === "open" || !counts.has(round.document.name));
    await Promise.all(pending.slice(-MOST_COUNTED).map(async ({ document: { name } }) => {
      counts.set(name, (await getRound(name)).reports);
    }));
    const open = rounds.filter((round) => round.state === "open");
    const sum = open.reduce((total, round) => total + (counts.get(round.document.name) ?? 0), 0);
    if (open.length) {
      announce(`${counted(sum, "report")} so far in ${counted(open.length, "open round")}.`);
    }
  }

  return {
    title: "Rounds",
    parts: [list],
    async refresh() {
      const { rounds } = await getJson("rounds");
      await countReports(rounds);
      show(list, cards, rounds, counts);
    },
  };
}

function show(list, cards, rounds, counts) {
  const names = rounds.map((round) => round.document.name).join(" ");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    cards.clear();
    list.replaceChildren(...studies(rounds, cards));
  }
  for (const round of rounds) {
    cards.get(round.document.name).update(round, counts.get(round.document.name));
  }
}

function studies(rounds, cards) {
  if (!rounds.length) {
    const command = element("code", {}, "offaxis collector open-round");
    return [element("p", {}, "There are no rounds yet. A publisher opens one with ", command, ".")];
  }
  const byStudy = Map.groupBy(rounds, (round) => round.document.study);
  return [...byStudy].map(([study, members]) => {
    const newest = members.sort((a, b) => b.document.number - a.document.number);
    const items = newest.map(({ document }) => {
      const card = roundCard(document);
      cards.set(document.name, card);
      return element("li", {}, card.node);
    });
    return element("section", { class: "study" },
      element("h2", {}, `Study ${study}`), element("ul", { class: "rounds" }, items));
  });
}

function roundCard(document) {
  const state = element("span");
  const number = element("p", { class: "count" });
  const label = element("p", { class: "small" });
  const period = element("p", { class: "small" });
  const link = element("a", { href: `#/rounds/${document.name}` }, document.name);
  const node = element("div", { class: "card" },
    element("div", { class: "title" }, link, state), number, label, period);
  return {
    node,
    update(round, reports) {
      state.replaceChildren(badge(round.state));
      number.hidden = label.hidden = reports === undefined;
      number.textContent = reports === undefined ? "" : count(reports);
      const suffix = round.state === "closed" ? "stored" : "so far";
      label.textContent = `${reports === 1 ? "report" : "reports"} ${suffix}`;
      const ends = round.closed_at ?? document.closes;
      const early = round.closed_at ? " (closed early)" : "";
      period.replaceChildren(time(document.opens), " to ", time(ends), early);
    },
  };
}
