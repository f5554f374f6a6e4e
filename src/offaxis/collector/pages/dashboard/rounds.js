/** The list of studies and their rounds, filling as reports come. */

import { element } from "../shared/dom.js";
import { ask, askRound } from "./api.js";
import { badge, count, counted, time } from "./words.js";

const MOST_COUNTED = 12;

/** @returns {import("./app.js").View} */
export function roundsPage({ role, say }) {
  const list = element("div", {}, element("p", {}, "Asking the collector…"));
  const known = new Map();
  const counts = new Map();

  async function countOpen(rounds) {
    if (role === "device") return;
    // What is closed changes no more. Newest first: an old collector may have very many.
    const wanted = rounds.filter((one) => one.state === "open" || !counts.has(one.document.name));
    const asked = wanted.slice(-MOST_COUNTED).map(async ({ document: { name } }) => {
      counts.set(name, (await askRound(name)).reports);
    });
    await Promise.all(asked);
    const open = rounds.filter((one) => one.state === "open");
    const sum = open.reduce((all, one) => all + (counts.get(one.document.name) ?? 0), 0);
    if (open.length) say(`${counted(sum, "report")} so far in ${counted(open.length, "open round")}.`);
  }

  return {
    title: "Rounds",
    parts: [list],
    async refresh() {
      const { rounds } = await ask("rounds");
      await countOpen(rounds);
      show(list, known, rounds, counts);
    },
  };
}

function show(list, known, rounds, counts) {
  const names = rounds.map((one) => one.document.name).join(" ");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    known.clear();
    list.replaceChildren(...studies(rounds, known));
  }
  for (const one of rounds) {
    known.get(one.document.name).update(one, counts.get(one.document.name));
  }
}

function studies(rounds, known) {
  if (!rounds.length) {
    const how = element("code", {}, "offaxis collector open-round");
    return [element("p", {}, "There are no rounds yet. A publisher opens one with ", how, ".")];
  }
  const byStudy = Map.groupBy(rounds, (one) => one.document.study);
  return [...byStudy].map(([study, its]) => {
    const newest = its.sort((a, b) => b.document.number - a.document.number);
    const cards = newest.map((one) => {
      const card = roundCard(one.document);
      known.set(one.document.name, card);
      return element("li", {}, card.node);
    });
    return element("section", { class: "study" },
      element("h2", {}, `Study ${study}`), element("ul", { class: "rounds" }, cards));
  });
}

function roundCard(document) {
  const state = element("span");
  const number = element("p", { class: "count" });
  const words = element("p", { class: "small" });
  const times = element("p", { class: "small" });
  const node = element("div", { class: "card" },
    element("div", { class: "title" }, element("a", { href: `#/rounds/${document.name}` }, document.name), state),
    number, words, times);
  return {
    node,
    update(one, reports) {
      state.replaceChildren(badge(one.state));
      number.hidden = reports === undefined;
      number.textContent = reports === undefined ? "" : count(reports);
      words.hidden = reports === undefined;
      const what = one.state === "closed" ? "stored" : "so far";
      words.textContent = `${reports === 1 ? "report" : "reports"} ${what}`;
      const ends = one.closed_at ?? document.closes;
      times.replaceChildren(time(document.opens), " to ", time(ends), one.closed_at ? " (closed early)" : "");
    },
  };
}
