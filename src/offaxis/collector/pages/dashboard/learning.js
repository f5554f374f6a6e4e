/** What reports of pairs teach: the learning curve by round, and the model of one round. */

import { growth, resizingChart } from "../shared/charts.js";
import { element, table } from "../shared/dom.js";
import { getFile, getJson, getOfRelease, getOfRound, getRound } from "./api.js";
import { badge, count, counted, number, percent } from "./words.js";

const MOST_ROUNDS = 12;
const NUDGE = 0.06; // so that error bars of a round are next to each other

const paragraph = (...text) => element("p", {}, ...text);
const within = ({ low, high }) => `${percent(low)} to ${percent(high)}`;
const CHECKS = "A round of checks tells it: other people say privately whether the model is right "
  + "about them (offaxis.learning.fit_check).";

/** Whether a release asks people for an answer, so that its rounds teach. */
export const teaches = (card) => card.report.answers.length > 0;

/** Return what a round teaches, or the reason why nothing is learnt from it: {facts} or {reason}. */
async function learningOf(name) {
  try {
    return { facts: await getOfRound(name, "learning") };
  } catch (error) {
    if (error.status !== 409) throw error;
    return { reason: error.message };
  }
}

// ---- One round

/** Return the part of a round's page about learning. */
export function learning(name) {
  const node = element("div", {}, paragraph("Loading…"));
  return {
    node,
    async update() {
      const { facts, reason } = await learningOf(name);
      if (reason) node.replaceChildren(paragraph(reason));
      else node.replaceChildren(...facts.alone.answers.flatMap((_, i) => answerParts(facts, i)));
    },
  };
}

function answerParts(facts, i) {
  const { alone, together, form, round } = facts;
  const answer = alone.answers[i];
  const title = alone.answers.length > 1 || form === "right"
    ? [element("h3", {}, answer.name)] : [];
  if (!alone.reports) return [...title, paragraph("No reports yet.")];
  const parts = [...title, ...stated(answer, form, alone.reports)];
  if (together.rounds.length > 1 && together.answers[i].accuracy) {
    parts.push(paragraph(
      `Together with earlier rounds of this release (${count(together.reports)} reports of `
      + `${together.rounds.length} rounds): ${percent(together.answers[i].accuracy.estimate)}, `
      + `${within(together.answers[i].accuracy)}. The interval takes people who answer several `
      + "rounds as different people."));
  }
  if (form !== "right") parts.push(download(round, answer.name, alone.answers.length > 1));
  return parts;
}

/** Return paragraphs about how good the model is. */
function stated({ accuracy, evidence, explained }, form, reports) {
  const state = evidence === null ? null : evidence
    ? badge("good", "the reports show something") : badge("closed", "nothing shown yet");
  if (accuracy) {
    const subject = form === "right"
      ? "The public model that this round checks is right about this share of people."
      : `A model learnt from this round's ${counted(reports, "report")} is expected to be right `
        + "about this share of people like those who reported.";
    return [
      element("p", { class: "big" }, percent(accuracy.estimate), " ", state),
      paragraph(`${subject} 95 % interval: ${within(accuracy)}. `
        + `Assumption: ${accuracy.assumption.replace(/^none: (.*)$/, "none ($1)")}.`),
    ];
  }
  if (form === "cells") return [element("p", {}, state), paragraph("Too few reports to judge a model.")];
  const spread = explained === null ? "" : ` The model explains a standard deviation of `
    + `${number(explained)} of the answers.`;
  return [
    element("p", {}, state),
    paragraph(`The reports of this release are cross moments, which do not tell how often a model `
      + `is right.${spread} ${CHECKS}`),
  ];
}

function download(round, answer, several) {
  const failure = element("p", { class: "small", role: "alert", hidden: true });
  const button = element("button", {
    type: "button",
    async onclick() {
      button.disabled = true;
      failure.hidden = true;
      try {
        const query = several ? `?answer=${encodeURIComponent(answer)}` : "";
        save(await getFile(`rounds/${encodeURIComponent(round)}/model${query}`), `${round}.safetensors`);
      } catch (error) {
        failure.textContent = `No model was downloaded: ${error.message}`;
        failure.hidden = false;
      }
      button.disabled = false;
    },
  }, "Download the model");
  return element("div", {}, element("div", { class: "controls" }, button,
    element("span", { class: "range" },
      "learnt from this round; a weights file for offaxis.geometry.Layers.load")), failure);
}

/** Let the browser save a file. */
function save(content, name) {
  const url = URL.createObjectURL(content);
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

// ---- The curve

/** @returns {import("./app.js").View} */
export function learningPage({ role, announce }) {
  const list = element("div", {}, paragraph("Loading…"));
  const cards = new Map();
  const studies = new Map();

  async function roundsOfPairs() {
    const { rounds } = await getJson("rounds");
    const hashes = [...new Set(rounds.map((round) => round.document.release))];
    await Promise.all(hashes.filter((hash) => !cards.has(hash)).map(async (hash) => {
      cards.set(hash, await getOfRelease(hash, "card"));
    }));
    return rounds.filter((round) => teaches(cards.get(round.document.release)));
  }

  return {
    title: "Learning",
    parts: [
      element("p", { class: "under" },
        "How good a model is after each round of pairs of a vector and a private answer."), list],
    async refresh() {
      if (role !== "analyst") {
        list.replaceChildren(paragraph(
          `Learning requires the role analyst; this token's role is ${role}.`));
        return;
      }
      const rounds = await roundsOfPairs();
      const byStudy = Map.groupBy(rounds, (round) => round.document.study);
      if ([...byStudy.keys()].join() !== [...studies.keys()].join() || !byStudy.size) {
        for (const name of byStudy.keys()) studies.set(name, studies.get(name) ?? new Study(name));
        list.replaceChildren(...(byStudy.size
          ? [...studies.values()].map((study) => study.node) : [nothing()]));
      }
      for (const [name, members] of byStudy) {
        const changed = await studies.get(name).update(members, cards);
        if (changed) announce(`Study ${name}: ${counted(changed, "report")} of pairs so far.`);
      }
    },
  };
}

const nothing = () => paragraph("No round asks people for an answer yet. A release that does is made "
  + "with ", element("code", {}, "offaxis.plan_learning"), ".");

/** A study: its rounds of pairs in order, with a chart and a table. */
class Study {
  #counts = new Map();
  #found = new Map();
  #charts = element("div");
  #numbers = element("div");
  #more = element("p", { class: "small" });

  constructor(name) {
    this.node = element("section", { class: "card study" },
      element("h2", {}, `Study ${name}`), this.#charts, this.#numbers, this.#more);
  }

  /** Show the rounds; return the number of reports if it changed, otherwise 0. */
  async update(members, cards) {
    const ordered = members.sort((a, b) => a.document.number - b.document.number);
    const rounds = ordered.slice(-MOST_ROUNDS);
    const names = rounds.map(({ document: { name } }) => name);
    const counts = new Map(await Promise.all(rounds.map(async ({ state, document: { name } }) => {
      const final = state === "closed" && this.#counts.has(name);
      return [name, final ? this.#counts.get(name) : (await getRound(name)).reports];
    })));
    if (names.every((name) => counts.get(name) === this.#counts.get(name))) return 0;
    // Reports of a round change what the later ones teach together with it.
    this.#found = new Map(await Promise.all(
      names.map(async (name) => [name, await learningOf(name)])));
    this.#show(rounds, cards);
    this.#more.hidden = ordered.length === rounds.length;
    this.#more.textContent = `The newest ${rounds.length} of ${ordered.length} rounds.`;
    // Set last, so that an update that failed halfway is repeated.
    this.#counts = counts;
    return [...counts.values()].reduce((sum, reports) => sum + reports, 0);
  }

  #show(rounds, cards) {
    const rows = rounds.map(({ document }) => ({
      document, card: cards.get(document.release), ...this.#found.get(document.name),
    }));
    const charts = answersOf(rows).map((answer) => chartOf(answer, rows));
    this.#charts.replaceChildren(...charts.flat());
    this.#numbers.replaceChildren(tableOf(rows));
  }
}

/** Return the names of the answers of which an accuracy is known. */
function answersOf(rows) {
  const known = rows.flatMap(({ facts }) => facts?.alone.answers ?? []);
  return [...new Set(known.filter(({ accuracy }) => accuracy).map(({ name }) => name))];
}

/** Return a title, a legend and a chart of the accuracies of an answer, by round. */
function chartOf(answer, rows) {
  const found = (part) => part?.answers.find(({ name }) => name === answer)?.accuracy ?? null;
  const points = (nudge, choose) => rows.flatMap(({ facts }, i) => {
    const accuracy = facts ? choose(facts) : null;
    return accuracy ? [{ ...accuracy, x: i + 1 + nudge, y: accuracy.estimate }] : [];
  });
  const learnt = ({ form }) => form !== "right";
  const lines = [
    { kind: "is-alone", text: "", points: points(-NUDGE, (facts) => learnt(facts) && found(facts.alone)) },
    { kind: "", text: "", points: points(NUDGE, (facts) => learnt(facts) && found(facts.together)) },
    { kind: "is-check", text: "", points: points(0, (facts) => !learnt(facts) && found(facts.alone)) },
  ];
  const classes = rows.flatMap(({ facts }) => facts?.alone.answers ?? [])
    .find(({ name }) => name === answer).classes;
  const legend = [
    ["key is-alone", "model from this round alone, with 95 % interval"],
    ["key", "model from all rounds so far"],
    ["key is-mark", "check of a public model"],
  ].filter((_, i) => lines[i].points.length);
  const chart = resizingChart();
  const several = answersOf(rows).length > 1;
  chart.show(growth({
    lines, range: [0.5, rows.length + 0.5], domain: [0, 1.05], names: ["round", "accuracy"],
    levels: classes
      ? [{ y: 1 / classes, text: `one of ${classes} at random: ${percent(1 / classes)}`, below: true }]
      : [],
    label: `Accuracy of ${answer} by round; the table below has the numbers`,
    format: (share) => `${Math.round(100 * share)} %`,
    formatX: (at) => (rows[at - 1] ? `${rows[at - 1].document.number}` : ""),
  }));
  return [
    ...(several ? [element("h3", {}, answer)] : []),
    element("ul", { class: "legend" }, legend.map(([key, text]) =>
      element("li", {}, element("span", { class: key }), text))),
    chart.node,
  ];
}

function tableOf(rows) {
  const cells = rows.flatMap(({ document, card, facts, reason }) => {
    const link = element("a", { href: `#/rounds/${document.name}` }, document.name);
    const epsilon = card.guarantee.epsilon;
    if (!facts) return [[link, "", reason, "", "", epsilon]];
    const { alone, together } = facts;
    const merged = together.rounds.length > 1;
    return alone.answers.map((answer, i) => [
      alone.answers.length > 1 ? element("span", {}, link.cloneNode(true), `: ${answer.name}`) : link,
      count(alone.reports), outcome(answer, facts.form, alone.reports),
      merged ? count(together.reports) : "",
      merged ? outcome(together.answers[i], facts.form, together.reports) : "",
      epsilon,
    ]);
  });
  const headings = ["round", "reports", "this round alone", "reports so far", "all rounds so far", "ε"];
  const some = rows.some(({ facts }) => facts?.form === "moments");
  return element("div", {}, table("Rounds in order", headings, cells, [2, 4]),
    some ? element("p", { class: "small" },
      `Cross moments do not tell how often a model is right. ${CHECKS}`) : null);
}

/** Return an accuracy with its interval, or what is known instead. */
function outcome({ accuracy, evidence, explained }, form, reports) {
  if (accuracy) {
    const text = `${percent(accuracy.estimate)} (${within(accuracy)})`;
    if (form === "right") return `${text}, of a public model`;
    return evidence ? text : `${text}; nothing shown yet`;
  }
  if (!reports) return "no reports yet";
  if (form === "cells") return "too few reports";
  const shown = evidence ? "the reports show something" : "nothing shown yet";
  return evidence && explained !== null ? `${shown}: ±\u00a0${number(explained)} explained` : shown;
}
