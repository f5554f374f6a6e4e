/** Ask the people of a study: shares of answers or the distribution of a number, by round. */

import { errorBars, growth, resizingChart } from "../shared/charts.js";
import { element, table } from "../shared/dom.js";
import { getJson, getOfRelease, getOfRound, getRound } from "./api.js";
import { badge, count, counted, number, percent, short } from "./words.js";

const MOST_ROUNDS = 12;
const MOST_BARS = 32;
const VECTORS = "vectors";

const paragraph = (...text) => element("p", {}, ...text);
const code = (text) => element("code", {}, text);
const section = (title, ...children) =>
  element("section", { class: "card" }, element("h2", {}, title), ...children);
const within = (row, format) => `${format(row.low)} to ${format(row.high)}`;
const points = (value) => `${value > 0 ? "+" : ""}${+(100 * value).toFixed(1)}`;

/** Return a labelled control. */
const field = (id, label, control) => {
  control.id = id;
  return element("span", { class: "field" }, element("label", { for: id }, label), control);
};

/** Offer options in a select, keeping the selected one if it is still offered. */
function offer(select, options) {
  const own = [...select.options].map(({ value, text }) => `${value}\n${text}`);
  if (own.join() === options.map((option) => option.join("\n")).join()) return;
  const selected = select.value;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === selected)) select.value = selected;
}

/** @returns {import("./app.js").View} */
export function askPage({ role, announce, again }) {
  const content = element("div", {}, paragraph("Loading…"));
  const cards = new Map();
  const crowd = new Crowd(again);

  /** Return the rounds whose people can be asked, by study and release, the newest first. */
  async function crowds() {
    const { rounds } = await getJson("rounds");
    const hashes = [...new Set(rounds.map((round) => round.document.release))];
    // Public vectors and questions may be attached at any time.
    await Promise.all(hashes.map(async (hash) => {
      cards.set(hash, await getOfRelease(hash, "questions"));
    }));
    const asked = rounds.filter((round) => !cards.get(round.document.release).reason);
    return {
      any: rounds.length > 0,
      groups: Map.groupBy(asked, ({ document: { study, release } }) => `${study}\n${release}`),
    };
  }

  return {
    title: "Ask",
    parts: [
      element("p", { class: "under" },
        "What would the people who reported answer, and has the crowd changed?"), content],
    async refresh() {
      if (role !== "analyst") {
        content.replaceChildren(paragraph(
          `Asking requires the role analyst; this token's role is ${role}.`));
        return;
      }
      const { any, groups } = await crowds();
      if (!groups.size) {
        content.replaceChildren(any ? nobody() : noRounds());
        return;
      }
      if (content.firstChild !== crowd.node) content.replaceChildren(crowd.node);
      const changed = await crowd.update(groups, cards);
      if (changed) announce(`${counted(changed, "report")} so far.`);
    },
  };
}

const noRounds = () => paragraph("There are no rounds yet. A publisher opens one with ",
  code("offaxis collector open-round"), ".");
const nobody = () => paragraph("No round can be asked: their reports are about vectors and private "
  + "answers together, or belong to sequences. What pairs teach is on the page ",
  element("a", { href: "#/learning" }, "Learning"), ".");
const unsupported = () => [
  paragraph("No public vectors are attached to this release, so nothing can be asked yet. A "
    + "publisher attaches them, and models to ask about, with"),
  element("pre", {}, code("offaxis collector attach my.release --support public.npy \\\n"
    + "    --question colour=head.safetensors")),
];

/** What is asked of the people of one study and release. */
class Crowd {
  #groups = new Map();
  #cards = new Map();
  #counts = new Map();
  #answers = new Map();
  #drifts = new Map();
  #drawn = "";
  #again;
  #study = element("select", { onchange: () => this.#changed() });
  #question = element("select", { onchange: () => this.#changed() });
  #output = element("select", { onchange: () => this.#changed() });
  #coordinate = element("input", {
    type: "number", min: "0", value: "0", step: "1", onchange: () => this.#changed(),
  });
  #answer = element("select", { onchange: () => this.#draw() });
  #round = element("select", { onchange: () => this.#draw() });
  #questionField = field("question", "Question", this.#question);
  #outputField = field("output", "Show", this.#output);
  #coordinateField = field("coordinate", "Coordinate", this.#coordinate);
  #answerField = field("answer", "Answer", this.#answer);
  #hint = element("p", { class: "small" });
  #empty = element("div");
  #rounds = element("div");
  #one = element("div");
  #verdicts = element("div");
  #parts;

  constructor(again) {
    this.#again = again;
    this.#parts = element("div", { class: "stack" },
      section("By round", element("div", { class: "controls" }, this.#answerField), this.#rounds),
      section("One round", element("div", { class: "controls" },
        field("round", "Round", this.#round)), this.#one),
      section("Has the crowd changed?", this.#verdicts));
    this.node = element("div", { class: "stack" },
      element("section", { class: "card" },
        element("h2", {}, "Question"),
        element("div", { class: "controls" },
          field("study", "Study", this.#study), this.#questionField, this.#outputField,
          this.#coordinateField),
        this.#hint, this.#empty),
      this.#parts);
  }

  /** Show the rounds; return the number of reports if it changed, otherwise 0. */
  async update(groups, cards) {
    this.#groups = groups;
    this.#cards = cards;
    offer(this.#study, [...groups.keys()].reverse().map((key) => {
      const [study, release] = key.split("\n");
      return [key, `${study}, release ${short(release)}`];
    }));
    this.#offerQuestions();
    const card = this.#card;
    const ready = card.answers_alone || card.support;
    this.#empty.replaceChildren(...(ready ? [] : unsupported()));
    this.#parts.hidden = !ready;
    if (!ready) this.#questionField.hidden = this.#coordinateField.hidden = true;
    else this.#questionField.hidden = false;
    if (!ready) return 0;
    // Another study or question may be chosen while this one is fetched.
    const rounds = this.#members;
    const asked = this.#asks;
    const counts = new Map(await Promise.all(rounds.map(async ({ state, document: { name } }) => {
      const final = state === "closed" && this.#counts.has(name);
      return [name, final ? this.#counts.get(name) : (await getRound(name)).reports];
    })));
    const before = [...counts].map(([name]) => this.#counts.get(name));
    const moved = [...counts.values()].some((reports, i) => reports !== before[i]);
    if (!this.#drawn) this.#rounds.replaceChildren(paragraph("Estimating the people of the rounds …"));
    await this.#fetch(rounds, counts, asked);
    for (const [name, reports] of counts) this.#counts.set(name, reports);
    this.#draw();
    return moved ? [...counts.values()].reduce((sum, reports) => sum + reports, 0) : 0;
  }

  get #card() {
    return this.#cards.get(this.#study.value.split("\n")[1]);
  }

  /** The newest rounds, in order. */
  get #members() {
    const members = [...this.#groups.get(this.#study.value)];
    members.sort((a, b) => a.document.number - b.document.number);
    return members.slice(-MOST_ROUNDS);
  }

  get #asked() {
    return this.#card.questions.find(({ name }) => name === this.#question.value);
  }

  /** The question as a query, such as "question=vectors&output=3". */
  get #query() {
    const query = new URLSearchParams({ question: this.#question.value });
    const output = this.#coordinateField.hidden ? this.#output.value : this.#coordinate.value;
    if (output !== "" && !(this.#coordinateField.hidden && this.#outputField.hidden)) {
      query.set("output", output);
    }
    return `${query}`;
  }

  #changed() {
    this.#offerQuestions();
    this.#again();
  }

  #offerQuestions() {
    const { questions, support, answers_alone: alone } = this.#card;
    // Models first: they say more than a coordinate.
    const ordered = [...questions.filter(({ name }) => alone || name !== VECTORS),
      ...questions.filter(({ name }) => !alone && name === VECTORS)];
    offer(this.#question, ordered.map(({ name }) =>
      [name, !alone && name === VECTORS ? "a coordinate of the vectors" : name]));
    const { name, outputs, answers } = this.#asked;
    const coordinate = !alone && name === VECTORS;
    this.#coordinateField.hidden = !coordinate;
    this.#coordinate.max = `${outputs - 1}`;
    this.#outputField.hidden = coordinate || outputs < 2;
    if (!this.#outputField.hidden) {
      const scores = Array.from({ length: outputs }, (_, i) =>
        [`${i}`, answers ? `the score of ${answers[i]}` : `number ${i}`]);
      offer(this.#output, answers ? [["", "shares of the answers"], ...scores] : scores);
    }
    this.#hint.textContent = alone
      ? "People reported these answers; nothing else can be asked of this release."
      : support ? `Any public model can be asked about: ${counted(support.vectors, "public vector")} `
        + `in ${count(support.cells)} cells are weighted so that they explain the reports.` : "";
    if (!alone && support && questions.length === 1) {
      this.#hint.textContent += " A publisher adds a model with offaxis collector attach "
        + "--question NAME=FILE.";
    }
  }

  /** What is asked now. Public vectors and models may be replaced by others of the same name. */
  get #asks() {
    const { support, questions } = this.#card;
    return {
      query: this.#query,
      attached: `${support?.hash} ${this.#asked.hash}`,
      hashes: [support?.hash, ...questions.map(({ hash }) => hash)],
    };
  }

  /** Fetch the answers and verdicts that are not known yet. */
  async #fetch(rounds, counts, { query, attached, hashes }) {
    const known = (map, key, state) => map.get(key)?.state === state;
    // A verdict depends on the reports of earlier rounds and on all models, too.
    const all = [...counts.values(), ...hashes].join();
    for (const { document: { name }, state } of [...rounds].reverse()) {
      const own = `${counts.get(name)} ${state} ${attached}`;
      const key = `${name} ${query}`;
      if (!known(this.#answers, key, own)) {
        const found = await part(name, `population?${query}`);
        this.#answers.set(key, { ...found, state: found.pending ? "" : own });
      }
      if (!known(this.#drifts, name, all)) {
        const found = await part(name, "drift");
        this.#drifts.set(name, { ...found, state: found.pending ? "" : all });
      }
    }
  }

  #draw() {
    const rounds = this.#members;
    const query = this.#query;
    const rows = rounds.map(({ document }) => ({
      document, ...this.#answers.get(`${document.name} ${query}`),
      drift: this.#drifts.get(document.name),
    }));
    // Another question may have been chosen while this one was fetched.
    if (rows.some((row) => !row.state && !row.pending)) return;
    offer(this.#round, [...rounds].reverse().map(({ document: { name } }) => [name, name]));
    const names = [...new Set(rows.flatMap(({ facts }) => (facts?.shares ?? []).map((row) => row.name)))];
    this.#answerField.hidden = !names.length;
    offer(this.#answer, names.map((name) => [name, name]));
    const drawn = JSON.stringify([rows, this.#answer.value, this.#round.value]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#rounds.replaceChildren(...byRound(rows, this.#answer.value));
    this.#one.replaceChildren(
      ...oneRound(rows.find(({ document: { name } }) => name === this.#round.value)));
    this.#verdicts.replaceChildren(...verdicts(rows));
  }
}

/** Return a part of a round: {facts}, the {reason} why there is none, or {pending}. */
async function part(name, path) {
  try {
    return { facts: await getOfRound(name, path) };
  } catch (error) {
    if (error.kind === "computing") return { pending: true };
    if (error.status !== 409 && error.status !== 422) throw error;
    return { reason: error.message.replace(/^.*?\(\d{3}: (.*)\)\.$/, "$1") };
  }
}

const ESTIMATING = "the population is being estimated…";

/** Return the warning of an answer as a notice. */
const notice = (warning) =>
  (warning ? [element("p", { class: "notice", role: "note" }, warning)] : []);

// ---- By round

/** Return the chart and the table of one number per round. */
function byRound(rows, answer) {
  const found = rows.map(({ facts }) =>
    facts?.mean ?? facts?.shares?.find(({ name }) => name === answer) ?? null);
  const shares = rows.some(({ facts }) => facts?.shares);
  const format = shares ? percent : number;
  const what = shares ? `share of ${answer}` : "mean";
  const shown = found.flatMap((row, i) => (row ? [{ ...row, x: i + 1, y: row.estimate }] : []));
  const warned = rows.filter(({ facts }) => facts?.warning).map(({ document: { name } }) => name);
  const parts = [];
  if (shown.length) parts.push(...lineOf(rows, shown, shares, what, format));
  if (warned.length) {
    parts.push(...notice(`In ${warned.join(", ")}, the answer comes with a warning and may be `
      + "wrong beyond its intervals. See the round below."));
  }
  const cells = rows.map(({ document, facts, reason, pending }, i) => {
    const link = element("a", { href: `#/rounds/${document.name}` }, document.name);
    if (!facts) return [link, "", "", "", pending ? ESTIMATING : reason];
    const row = found[i];
    return [link, count(facts.reports), row ? format(row.estimate) : "too few reports",
      row ? within(row, format) : "", fitBadge(facts)];
  });
  const headings = ["round", "reports", what, "95 % interval", "population"];
  parts.push(table("Answer by round", headings, cells, [4]));
  return parts;
}

function lineOf(rows, shown, shares, what, format) {
  const level = shown[0].public;
  const values = shown.flatMap(({ low, high }) => [low, high]);
  if (level !== null) values.push(level);
  const [low, high] = [Math.min(...values, ...(shares ? [0] : [])), Math.max(...values)];
  const pad = 0.08 * (high - low || Math.abs(high) || 1);
  const chart = resizingChart();
  chart.show(growth({
    lines: [{ kind: "", text: "", points: shown }],
    levels: level === null ? []
      : [{ y: level, text: `public vectors: ${format(level)}`, below: true }],
    range: [0.5, rows.length + 0.5], domain: [shares ? 0 : low - pad, high + pad],
    names: ["round", what], format: shares ? (share) => `${Math.round(100 * share)} %` : number,
    formatX: (at) => (rows[at - 1] ? `${rows[at - 1].document.number}` : ""),
    label: `The ${what} by round; the table below has the numbers`,
  }));
  return [chart.node];
}

function fitBadge({ fit }) {
  if (!fit) return badge("good", "as reported");
  if (!fit.explained) return badge("bad", "does not explain the reports");
  if (fit.warning) return badge("waiting", "has a warning");
  return fit.p_value === null ? badge("closed", "cannot be checked") : badge("good", "fits");
}

// ---- One round

function oneRound({ facts, reason, pending }) {
  if (pending) return [paragraph(`Please wait: ${ESTIMATING}`)];
  if (!facts) return [paragraph(reason)];
  const { shares, histogram, mean, quantiles, missing, warning, summary, reports, stored } = facts;
  const parts = notice(warning);
  const more = stored > reports
    ? ` The round has ${count(stored)} reports; the estimate is renewed as they grow.` : "";
  if (shares) parts.push(...bars(shares));
  if (mean) {
    parts.push(element("p", { class: "big" }, number(mean.estimate),
      element("span", { class: "beside" }, ` mean, 95 % interval ${within(mean, number)}`)));
  }
  if (histogram) parts.push(...histogramOf(histogram));
  if (quantiles) parts.push(...quantilesOf(quantiles));
  if (missing.length) parts.push(...missing.map((text) => paragraph(`Not shown: ${text}`)));
  const drawnTo = facts.fit ? " Estimates are drawn towards the public vectors and intervals are not, "
    + "so an estimate may lie outside of its interval." : "";
  parts.push(element("p", { class: "small" },
    `${warning ? `${counted(reports, "report")}.` : summary}${drawnTo}${more}`));
  return parts;
}

const legend = (compared) => element("ul", { class: "legend" },
  element("li", {}, element("span", { class: "key" }), "the people, with 95 % interval"),
  compared ? element("li", {}, element("span", { class: "key is-other" }), "the public vectors") : null);

function bars(rows) {
  const shown = rows.slice(0, MOST_BARS);
  const compared = shown[0].public !== null;
  const chart = resizingChart();
  chart.show(errorBars({
    values: shown.map(({ estimate }) => estimate), ends: shown.map(({ low, high }) => [low, high]),
    marks: compared ? shown.map((row) => row.public) : null,
    labels: shown.map(({ name }) => name), first: 0, bars: true, names: ["answer", "share"],
    format: percent, label: "Shares of answers with error bars; the table below has the numbers",
  }));
  const cells = rows.map((row) => [row.name, percent(row.estimate), within(row, percent),
    ...(compared ? [percent(row.public)] : [])]);
  const headings = ["answer", "share", "95 % interval", ...(compared ? ["public vectors"] : [])];
  const rest = rows.length > shown.length
    ? [element("p", { class: "small" }, `The first ${shown.length} of ${rows.length} answers.`)] : [];
  return [legend(compared), chart.node, ...rest, details("Shares as a table",
    table("Shares of answers", headings, cells))];
}

function histogramOf({ edges, bins }) {
  const compared = bins[0].public !== null;
  const chart = resizingChart();
  chart.show(errorBars({
    values: bins.map(({ estimate }) => estimate), ends: bins.map(({ low, high }) => [low, high]),
    marks: compared ? bins.map((row) => row.public) : null, first: 0, bars: true,
    edges: edges.map((edge) => `${+edge.toPrecision(3)}`), names: ["number", "share"],
    format: percent, label: "Histogram with error bars; the table below has the numbers",
  }));
  const cells = bins.map((row, i) => [`${number(edges[i])} to ${number(edges[i + 1])}`,
    percent(row.estimate), within(row, percent), ...(compared ? [percent(row.public)] : [])]);
  const headings = ["number", "share", "95 % interval", ...(compared ? ["public vectors"] : [])];
  return [legend(compared), chart.node,
    details("Histogram as a table", table("Histogram", headings, cells))];
}

function quantilesOf(rows) {
  const compared = rows[0].public !== null;
  const cells = rows.map((row) => [row.q === 0.5 ? "median" : `${Math.round(100 * row.q)} %`,
    number(row.estimate), within(row, number), ...(compared ? [number(row.public)] : [])]);
  const headings = ["below", "number", "95 % interval", ...(compared ? ["public vectors"] : [])];
  return [details("Quantiles as a table", table("Quantiles", headings, cells))];
}

const details = (summary, ...children) =>
  element("details", {}, element("summary", {}, summary), ...children);

// ---- Drift

function verdicts(rows) {
  const items = [...rows].reverse().map(({ document: { name }, drift }) => {
    const facts = drift?.facts;
    if (!facts) return element("li", {}, element("h3", {}, name), paragraph(drift?.reason ?? ESTIMATING));
    const { change } = facts;
    const shown = change?.changed ? whereOf(name, change) : [];
    return element("li", {},
      element("div", { class: "title" }, element("h3", {}, name), changeBadge(change)),
      paragraph(facts.summary), ...notice(change?.changed ? change.warning : ""), ...shown);
  });
  return [element("ul", { class: "verdicts" }, items)];
}

function changeBadge(change) {
  if (!change || change.changed === null) return badge("closed", "not compared");
  return change.changed ? badge("bad", "changed") : badge("good", "no change found");
}

function whereOf(name, { where, since, missing }) {
  const unknown = missing ? [paragraph(`Not shown: ${missing}`)] : [];
  if (!where.length) return unknown;
  const known = where.some((row) => like(row));
  const cells = where.map((row) => [row.name, percent(row.before), percent(row.now),
    points(row.change), `${points(row.low)} to ${points(row.high)}`, ...(known ? [like(row)] : [])]);
  const headings = ["share of", `in ${since}`, "now", "change, points", "interval",
    ...(known ? ["which public vectors"] : [])];
  return [details("Where it changed", element("p", { class: "small" },
    "With 95 % confidence all these changes are in their intervals at once."),
  table(`Changes in ${name}`, headings, cells, [5])), ...unknown];
}

/** Return what the public vectors of a cell are like. */
const like = ({ answers, coordinates }) => [
  ...answers.map(({ question, answer, share }) => `${question}: ${percent(share)} ${answer}`),
  ...(answers.length ? [] : coordinates.map(({ coordinate, deviations }) =>
    `coordinate ${coordinate} ${deviations > 0 ? "high" : "low"}`)),
].join(", ");
