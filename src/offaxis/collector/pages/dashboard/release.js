/** Releases: the privacy card in plain words, the curve with its ceiling, and the audit. */

import { curve, place } from "../shared/charts.js";
import { element, facts, table } from "../shared/dom.js";
import { ask, askOfRelease } from "./api.js";
import { badge, count, number, percent, short, time } from "./words.js";

const list = (lines) => element("ul", {}, lines.map((line) => element("li", {}, line)));
const paragraphs = (lines) => lines.map((line) => element("p", {}, line));

/** @returns {import("./app.js").View} */
export function releasesPage() {
  const place = element("div", {}, element("p", {}, "Asking the collector…"));
  const cards = new Map();
  return {
    title: "Releases",
    parts: [place],
    async refresh() {
      const { releases } = await ask("releases");
      await Promise.all(releases.map(async ({ hash }) => {
        if (!cards.has(hash)) cards.set(hash, await askOfRelease(hash, "card"));
      }));
      const names = releases.map((one) => one.hash).join(" ");
      if (place.dataset.names === names && names) return;
      place.dataset.names = names;
      const shown = releases.reverse().map((one) => element("li", {}, releaseCard(one, cards.get(one.hash))));
      place.replaceChildren(shown.length
        ? element("ul", { class: "rounds" }, shown)
        : element("p", {}, "There are no releases yet. A publisher brings one with ", element("code", {}, "offaxis collector publish"), "."));
    },
  };
}

function releaseCard(one, card) {
  return element("div", { class: "card" },
    element("div", { class: "title" }, element("a", { href: `#/releases/${one.hash}` }, element("code", {}, short(one.hash))), strength(card)),
    element("p", { class: "count" }, promised(card)),
    element("p", { class: "small" }, `per ${card.guarantee.unit}; a report has ${count(card.report.bytes)} bytes`),
    element("p", { class: "small" }, "published ", time(one.published_at)));
}

const promised = ({ guarantee }) =>
  guarantee.pure ? `ε = ${guarantee.epsilon}` : `ε = ${guarantee.epsilon}, δ = ${guarantee.delta}`;

const strength = (card) =>
  badge({ strong: "good", moderate: "waiting" }[card.strength] ?? "bad", `${card.strength} protection`);

/** @returns {import("./app.js").View} */
export function releasePage(_, hash) {
  const below = element("div", {}, element("p", {}, "Asking the collector…"));
  let done = false;
  return {
    title: `Release ${short(hash)}`,
    parts: [below],
    async refresh() {
      if (done) return;
      below.replaceChildren(...await releaseParts(await askOfRelease(hash, "card")));
      done = true;
    },
  };
}

/** Return the parts of a page about a release, given its card. */
export async function releaseParts(card) {
  const asked = card.facts.map(async (kind) => [kind, await askOfRelease(card.release, `facts/${kind}`)]);
  const attached = Object.fromEntries(await Promise.all(asked));
  const beside = [
    attached.curve ? curvePart(attached.curve, card) : missing("What does ε allow?", "No curve is attached to this release", "--curve"),
    attached.audit ? auditPart(attached.audit) : missing("Audit", "No audit is attached to this release", "--audit"),
  ];
  return [cardPart(card), ...beside].map((part) => element("div", { class: "grid" }, part));
}

const missing = (title, words, option) => element("section", { class: "card" }, element("h2", {}, title),
  element("p", {}, `${words}; a publisher brings one with `, element("code", {}, `offaxis collector attach ${option}`), "."));

function cardPart(card) {
  const { guarantee, report, origin } = card;
  const rows = [
    ["one report", `${count(report.bytes)} bytes, the same for every vector`],
    ["a vector is", `${count(report.input_dim)} numbers${report.encoded_dim === report.input_dim ? "" : `, encoded to ${count(report.encoded_dim)}`}`],
    ["randomizer", report.randomizer],
    ["a report names", report.symbols === null ? "a noisy vector" : `${report.randomizer === "subset" ? "some" : "one"} of ${count(report.symbols)} symbols`],
    ["averages over people", report.averages],
    ["really spent", `ε = ${card.spent.epsilon}${guarantee.pure ? "" : `, δ = ${card.spent.delta}`}`],
    ["fitted to", `${count(origin.public_vectors)} public vectors${origin.model ? ` and the model ${origin.model}` : ""}`],
    ["release", element("code", { class: "hash" }, card.release)],
  ];
  return element("section", { class: "card" }, element("h2", {}, "Privacy card"),
    element("p", { class: "big" }, `${promised(card)}, per ${guarantee.unit} `, strength(card)),
    element("div", { class: "columns" },
      element("div", {}, paragraphs(card.promise),
        element("p", {}, element("strong", {}, `In plain words: ${card.strength}. `), card.meaning),
        element("h3", {}, "To whom"), paragraphs(card.protected),
        element("details", {}, element("summary", {}, "What is not promised"), list(card.not_promised)),
        element("details", {}, element("summary", {}, "Under which assumptions"), list(guarantee.assumptions))),
      element("div", {}, limits(card), element("h3", {}, "Reports"), facts(rows))));
}

/** Return the tables of a pure promise; there are none otherwise. */
function limits(card) {
  if (!card.guarantee.pure) return null;
  const sure = "How sure somebody can be of a guess, before and after one report";
  const guessed = "How often one of several equally likely answers can be guessed";
  return [
    element("h3", {}, sure),
    table(sure, ["before", "after, at least", "after, at most"],
      card.beliefs.map((row) => [row.before, row.at_least, row.at_most])),
    element("h3", {}, guessed),
    table(guessed, ["answers", "without a report", "from one report, at most"],
      card.allowed.map((row) => [row.answers, row.guessing, row.at_most])),
  ];
}

const GOALS = {
  answers: { title: "agreement with the model", format: percent, limit: "no ε-LDP report allows more" },
  fidelity: { title: "fidelity of the vector", format: number, limit: "no ε-LDP report allows more" },
  mean: { title: "error of a mean", format: number, limit: "no unbiased report leaves less" },
};

function curvePart({ budgets }, card) {
  const { goal } = budgets[0];
  const { title, format, limit } = GOALS[goal];
  // For means the score is the negative error.
  const turned = (value) => (goal === "mean" && value !== null ? -value : value);
  const points = budgets.map(({ epsilon, expected, ceiling }) => ({
    x: epsilon, y: turned(expected.score), low: turned(expected.low), high: turned(expected.high), limit: turned(ceiling),
  }));
  const own = fraction(card.guarantee.epsilon);
  const chart = place();
  chart.show(curve({
    points, mark: { x: own, words: `this release, ε = ${card.guarantee.epsilon}` }, names: ["ε", title], format,
    label: `${title} against ε with its ceiling; the table below has the numbers`,
  }));
  const legend = [["key", "the best release found, with three standard errors"], ["key is-limit", limit], ["key is-mark", "this release's ε"]];
  const rows = budgets.map((one, at) => [
    `${one.epsilon}`, one.choice, format(points[at].y), points[at].limit === null ? "" : format(points[at].limit)]);
  return element("section", { class: "card" }, element("h2", {}, "What does ε allow?"),
    element("p", {}, `Expected ${title} on public vectors, if the release recommended at each ε is used.`),
    element("ul", { class: "legend" }, legend.map(([key, words]) => element("li", {}, element("span", { class: key }), words))),
    chart.node,
    element("details", {}, element("summary", {}, "The curve as a table"),
      table("What is recommended at every ε", ["ε", "choose", "expected", "ceiling"], rows, [1])));
}

/** Return the number that exact text, p/q or a decimal, stands for. */
function fraction(text) {
  const [above, below = "1"] = text.split("/");
  return Number(above) / Number(below);
}

function auditPart(audit) {
  const rows = audit.findings.map((one) => [
    one.test, one.tried, one.verdict === "nothing found" ? one.result || one.verdict : `${one.verdict}: ${one.result}`,
    one.epsilon_at_least === null ? "" : number(one.epsilon_at_least), one.reports ? count(one.reports) : ""]);
  return element("section", { class: "card" }, element("h2", {}, "Audit"),
    element("p", { class: "big" }, audit.violation ? badge("bad", "violation found") : badge("good", "no violation found")),
    paragraphs([audit.summary, audit.caveat]),
    element("details", {}, element("summary", {}, `All ${audit.findings.length} tests`),
      table("Tests of the audit", ["test", "what was tried", "result", "ε ≥", "reports"], rows, [1, 2])));
}
