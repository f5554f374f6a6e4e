/** Releases: the privacy card, the curve of utility against ε with its ceiling, and the audit. */

import { curve, resizingChart } from "../shared/charts.js";
import { element, facts, table } from "../shared/dom.js";
import { getJson, getOfRelease } from "./api.js";
import { badge, count, number, percent, promised, short, time } from "./words.js";

const list = (lines) => element("ul", {}, lines.map((line) => element("li", {}, line)));
const paragraphs = (lines) => lines.map((line) => element("p", {}, line));
const details = (summary, ...children) =>
  element("details", {}, element("summary", {}, summary), ...children);
const section = (title, ...children) =>
  element("section", { class: "card" }, element("h2", {}, title), ...children);

/** @returns {import("./app.js").View} */
export function releasesPage() {
  const content = element("div", {}, element("p", {}, "Loading…"));
  const cards = new Map();
  return {
    title: "Releases",
    parts: [content],
    async refresh() {
      const { releases } = await getJson("releases");
      await Promise.all(releases.map(async ({ hash }) => {
        if (!cards.has(hash)) cards.set(hash, await getOfRelease(hash, "card"));
      }));
      const hashes = releases.map(({ hash }) => hash).join(" ");
      if (content.dataset.hashes === hashes && hashes) return;
      content.dataset.hashes = hashes;
      const items = releases.reverse().map((release) =>
        element("li", {}, releaseCard(release, cards.get(release.hash))));
      content.replaceChildren(items.length
        ? element("ul", { class: "rounds" }, items)
        : element("p", {}, "There are no releases yet. A publisher adds one with ",
          element("code", {}, "offaxis collector publish"), "."));
    },
  };
}

function releaseCard({ hash, published_at: publishedAt }, card) {
  const link = element("a", { href: `#/releases/${hash}` }, element("code", {}, short(hash)));
  const size = `per ${card.per}; ${count(card.report.bytes)} bytes per report`;
  return element("div", { class: "card" },
    element("div", { class: "title" }, link, strength(card)),
    element("p", { class: "count" }, promised(card.guarantee)),
    element("p", { class: "small" }, size),
    element("p", { class: "small" }, "published ", time(publishedAt)));
}

const strength = (card) => badge(
  { strong: "good", moderate: "waiting" }[card.strength] ?? "bad", `${card.strength} protection`);

/** @returns {import("./app.js").View} */
export function releasePage(_, hash) {
  const content = element("div", {}, element("p", {}, "Loading…"));
  let done = false;
  return {
    title: `Release ${short(hash)}`,
    parts: [content],
    async refresh() {
      if (done) return;
      content.replaceChildren(...await releaseParts(await getOfRelease(hash, "card")));
      done = true;
    },
  };
}

/** Return the parts of a page about a release, given its card. */
export async function releaseParts(card) {
  const attached = Object.fromEntries(await Promise.all(
    card.facts.map(async (kind) => [kind, await getOfRelease(card.release, `facts/${kind}`)])));
  const parts = [
    cardPart(card),
    attached.curve ? curvePart(attached.curve, card) : missing("Utility at each ε", "curve"),
    attached.audit ? auditPart(attached.audit, card) : missing("Audit", "audit"),
  ];
  return parts.map((part) => element("div", { class: "grid" }, part));
}

const missing = (title, kind) => section(title,
  element("p", {}, `No ${kind} is attached to this release. A publisher adds one with `,
    element("code", {}, `offaxis collector attach --${kind}`), "."));

function cardPart(card) {
  const { guarantee, report, origin } = card;
  const encoded = report.encoded_dim === report.input_dim
    ? "" : `, encoded to ${count(report.encoded_dim)}`;
  const named = report.randomizer === "subset" ? "a subset" : "one";
  const delta = guarantee.pure ? "" : `, δ = ${card.spent.delta}`;
  const model = origin.model ? ` and the model ${origin.model}` : "";
  const rows = [
    ["size of a report", `${count(report.bytes)} bytes, the same for every vector`],
    ["vector", `${count(report.input_dim)} numbers${encoded}`],
    ["randomizer", report.randomizer],
    ["content of a report",
      report.symbols === null ? "a noisy vector" : `${named} of ${count(report.symbols)} symbols`],
    ["averages over people", report.averages],
    ["really spent", `ε = ${card.spent.epsilon}${delta}`],
    ...(card.loss_above_epsilon ? [["loss above ε", card.loss_above_epsilon]] : []),
    ["fitted to", `${count(origin.public_vectors)} public vectors${model}`],
    ["release", element("code", { class: "hash" }, card.release)],
  ];
  return section("Privacy card",
    element("p", { class: "big" },
      `${promised(guarantee)}, per ${card.per} `, strength(card)),
    element("div", { class: "columns" },
      element("div", {}, paragraphs(card.promise),
        element("p", {}, element("strong", {}, `In plain words: ${card.strength}. `), card.meaning),
        sequence(card),
        element("h3", {}, "To whom"), paragraphs(card.protected),
        details("What is not promised", list(card.not_promised)),
        details("Under which assumptions", list(guarantee.assumptions))),
      element("div", {}, limits(card), element("h3", {}, "Reports"), facts(rows))));
}

/** Return the promises of a release of sequences, each for two histories of one person. */
function sequence(card) {
  if (!card.sequence.length) return [];
  return [
    element("h3", {}, "What a sequence of reports promises"),
    facts(card.sequence.map((row) => [row.compared, row.promise])),
  ];
}

/** Return the tables of a pure guarantee; otherwise the reason why there are none. */
function limits(card) {
  if (!card.guarantee.pure) {
    return [
      element("h3", {}, "Why there is no table of beliefs"),
      element("p", {}, `With δ = ${card.guarantee.delta} some reports may move a belief further `
        + "than e^ε allows, and the promise by itself does not rule out that such a report tells "
        + "everything. So no belief after a report has a limit that holds for every report."),
    ];
  }
  const belief = `Confidence in a guess before and after ${card.about}`;
  const guess = "Chance of guessing one of several equally likely answers";
  return [
    element("h3", {}, belief),
    table(belief, ["before", "after, at least", "after, at most"],
      card.beliefs.map((row) => [row.before, row.at_least, row.at_most])),
    element("h3", {}, guess),
    table(guess, ["answers", "without a report", `from ${card.about}, at most`],
      card.allowed.map((row) => [row.answers, row.guessing, row.at_most])),
  ];
}

const CEILING = "upper bound for every report of pure ε";
const GOALS = {
  answers: { title: "agreement with the model", format: percent, limit: CEILING },
  vectors: { title: "fidelity of the vector", format: number, limit: CEILING },
  means: { title: "error of a mean", format: number, limit: "lower bound for unbiased reports" },
};

function curvePart({ budgets }, card) {
  const { goal } = budgets[0];
  const { title, format, limit } = GOALS[goal];
  // For means the score is the negative error.
  const sign = (value) => (goal === "means" && value !== null ? -value : value);
  const points = budgets.map(({ epsilon, expected, ceiling }) => ({
    x: epsilon, y: sign(expected.score), limit: sign(ceiling),
    low: sign(expected.low), high: sign(expected.high),
  }));
  const { guarantee } = card;
  const chart = resizingChart();
  chart.show(curve({
    points, names: ["ε", title], format,
    mark: { x: fraction(guarantee.epsilon), text: `this release, ${promised(guarantee)}` },
    label: `${title} against ε with its ceiling; the table below has the numbers`,
  }));
  const legend = [
    ["key", "best release found, ± 3 standard errors"],
    ["key is-limit", limit],
    ["key is-mark", "ε of this release"],
  ];
  const rows = budgets.map((budget, i) => [
    `${budget.epsilon}`, budget.choice, format(points[i].y),
    points[i].limit === null ? "" : format(points[i].limit)]);
  return section("Utility at each ε",
    element("p", {}, `Expected ${title} on public vectors with the release recommended at each ε.`),
    guarantee.pure ? null : element("p", {},
      "The curve and its bound are for pure reports, with δ = 0. This release promises less, "
      + `δ = ${guarantee.delta}, and the bound does not apply to it.`),
    element("ul", { class: "legend" }, legend.map(([key, text]) =>
      element("li", {}, element("span", { class: key }), text))),
    chart.node,
    details("The curve as a table", table(
      "Recommendation at each ε", ["ε", "recommended", "expected", "ceiling"], rows, [1])));
}

/** Return the value of an exact text, p/q or a decimal. */
function fraction(text) {
  const [numerator, denominator = "1"] = text.split("/");
  return Number(numerator) / Number(denominator);
}

function auditPart(audit, { guarantee }) {
  const least = guarantee.pure ? "ε ≥" : `ε ≥, at δ = ${guarantee.delta}`;
  const rows = audit.findings.map(({ test, tried, verdict, result, epsilon_at_least, reports }) => [
    test, tried, verdict === "nothing found" ? result || verdict : `${verdict}: ${result}`,
    epsilon_at_least === null ? "" : number(epsilon_at_least), reports ? count(reports) : ""]);
  const outcome = audit.violation
    ? badge("bad", "violation found") : badge("good", "no violation found");
  return section("Audit",
    element("p", { class: "big" }, outcome),
    paragraphs([audit.summary, audit.caveat]),
    details(`All ${audit.findings.length} tests`, table(
      "Tests of the audit", ["test", "attack", "result", least, "reports"], rows, [1, 2])));
}
