/**
 * The second act: simulated people report a hidden drawing and its answer together, and a reader
 * learns from the reports.
 *
 * The reports are made by the client, with fresh randomness. What is shown of a person is the report.
 */

import { growth, resizingChart } from "../shared/charts.js";
import { element, table } from "../shared/dom.js";
import { hexOf } from "./columns.js";
import { Drawing, showImage } from "./drawing.js";
import { Reader, Sums } from "./reader.js";

const STEP = 100;
const PACE = 40; // milliseconds between two steps, so that the curve is seen growing
const MILESTONES = [100, 500, 1000, 2000, 4000, 8000];
const at = (id) => document.getElementById(id);
const counted = (value) => value.toLocaleString("en");
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** The crowd at one ε: everybody reports at most once, in random order. */
class Run {
  /** Accuracies on the held-out drawings: {x: reports, y: accuracy}. */
  points = [];
  reader = null;
  /** The last report, and the symbols that it names. */
  last = null;
  #order;

  constructor(epsilon, release, people, shares, symbols) {
    Object.assign(this, { epsilon, release, people, shares });
    this.sums = new Sums(symbols);
    this.#order = shuffled(people.length);
  }

  get done() {
    return this.sums.count === this.people.length;
  }

  /** Let the next people report, and learn from all reports so far. */
  async step() {
    const from = this.sums.count;
    for (const i of this.#order.slice(from, from + STEP)) {
      const { vector, digit } = this.people[i];
      const report = await this.release.privatize(vector, digit);
      this.last = { report, named: this.sums.add(await this.release.observe(report)) };
    }
    this.reader = new Reader(this.sums, this.shares);
  }
}

/** The section of the page. */
export class Crowd {
  #assets;
  #cellOf;
  #shares;
  #classes;
  #judged;
  #runs = new Map();
  #run = null;
  #turn = 0;
  #playing = false;
  #work = Promise.resolve();
  #refusal = "";
  #tried = null;
  #chart = resizingChart();
  #named;
  #learnt;

  constructor(assets) {
    this.#assets = assets;
    const { cellOf, shares } = assets.publicCells(assets.pairs.releases[0].epsilon);
    [this.#cellOf, this.#shares] = [cellOf, shares];
    this.#classes = 1 + Math.max(...assets.heldOut.map(({ digit }) => digit));
    this.#judged = this.#countHeldOut();
    document.querySelector("#crowd .people").textContent = counted(assets.people.length);
    at("crowd-chart").append(this.#chart.node);
    const kinds = this.#kindsOfDrawings();
    this.#named = new Grid(at("report-pairs"), kinds, this.#classes, "Pairs that the last report names");
    this.#learnt = new Grid(at("reader-table"), kinds, this.#classes, "The reader's answers");
    at("crowd-epsilon").addEventListener("input", () => this.#begin());
    at("crowd-step").addEventListener("click", () => this.#stepOnce());
    at("crowd-all").addEventListener("click", () => this.#play());
    at("crowd-reset").addEventListener("click", () => {
      this.#runs.clear();
      this.#begin();
    });
    this.#offerDrawings();
    this.#begin();
  }

  /** Count the held-out drawings by cell and answer. */
  #countHeldOut() {
    const counts = this.#shares.map(() => new Float64Array(this.#classes));
    for (const { vector, digit } of this.#assets.heldOut) counts[this.#cellOf(vector)][digit] += 1;
    return counts;
  }

  /** Return an example image of each cell, or null. */
  #kindsOfDrawings() {
    const images = this.#shares.map(() => null);
    for (const { image } of this.#assets.examples) {
      images[this.#cellOf(this.#assets.vectorOf(image))] ??= image;
    }
    return images;
  }

  // ---- Reports

  /** Prepare a new crowd at the chosen ε; finished and earlier curves of other ε stay. */
  #begin() {
    this.#turn += 1;
    this.#playing = false;
    const epsilon = Number(at("crowd-epsilon").value);
    this.#runs.delete(epsilon);
    this.#run = null;
    this.#refusal = "";
    at("crowd-budget").textContent = `ε = ${epsilon}`;
    at("crowd-epsilon").setAttribute("aria-valuetext", `ε = ${epsilon}`);
    at("crowd-promise").textContent =
      "Whoever sees a report can change their odds between any two pairs of a drawing and an answer " +
      `by a factor of at most e^ε = ${Math.exp(epsilon).toPrecision(3)}; the reader is made from ` +
      "reports alone, so it reveals no more than they do.";
    this.#show();
  }

  /** Return the run at the chosen ε; its release is checked before the first report. */
  async #current() {
    const epsilon = Number(at("crowd-epsilon").value);
    const release = await this.#assets.pairRelease(epsilon);
    if (epsilon !== Number(at("crowd-epsilon").value)) return null;
    if (!this.#run) {
      const symbols = this.#shares.length * this.#classes;
      this.#run = new Run(epsilon, release, this.#assets.people, this.#shares, symbols);
      this.#run.points.push({ x: 0, y: this.#assets.pairs.nobody_asked });
      this.#runs.set(epsilon, this.#run);
    }
    return this.#run;
  }

  /** Let the next people report; return whether more should follow. */
  async #step(turn) {
    const run = await this.#current();
    if (!run || run.done || turn !== this.#turn) return false;
    await run.step();
    if (run !== this.#run) return false;
    run.points.push({ x: run.sums.count, y: this.#accuracyOf(run.reader) });
    this.#show();
    return !run.done && turn === this.#turn;
  }

  async #stepOnce() {
    this.#playing = false;
    const turn = ++this.#turn;
    await this.#afterOthers(() => this.#step(turn));
    this.#announce();
  }

  /** Let everybody report, or pause. */
  async #play() {
    this.#playing = !this.#playing;
    const turn = ++this.#turn;
    this.#show();
    if (!this.#playing) return;
    await this.#afterOthers(async () => {
      while (await this.#step(turn)) await new Promise((resume) => setTimeout(resume, PACE));
    });
    if (turn !== this.#turn) return;
    this.#playing = false;
    this.#show();
    this.#announce();
    document.dispatchEvent(new Event("learnt"));
  }

  /** Run an action after those before it; show why no report is made, if a release is refused. */
  async #afterOthers(action) {
    this.#work = this.#work.then(action).catch((error) => {
      this.#refusal = `No report is made: ${error.message}`;
    });
    await this.#work;
    this.#show();
  }

  #accuracyOf(reader) {
    const right = this.#judged.map((counts, cell) => counts[reader.answer(cell)]);
    return right.reduce((sum, count) => sum + count, 0) / this.#assets.heldOut.length;
  }

  // ---- What is shown

  #show() {
    const run = this.#run;
    const count = run?.sums.count ?? 0;
    at("crowd-all").textContent = this.#playing ? "Pause" : "Let everybody report";
    at("crowd-all").disabled = at("crowd-step").disabled = Boolean(run?.done);
    at("crowd-count").textContent = counted(count);
    at("crowd-accuracy").textContent = count ? percent(run.points.at(-1).y) : "–";
    const expected = count ? run.reader.expectedAccuracy() : null;
    at("crowd-expected").textContent = expected
      ? `${percent(expected.low, 0)} to ${percent(expected.high, 0)}`
      : "–";
    at("crowd-refused").textContent = this.#refusal;
    at("crowd-refused").hidden = !this.#refusal;
    const { length } = this.#assets.heldOut;
    at("crowd-note").textContent =
      `Accuracy on ${counted(length)} held-out public drawings. Reports are made by this page, each ` +
      "with fresh randomness, so every run differs. Each curve is one crowd, simulated anew: in life a " +
      "second report would cost ε again.";
    this.#draw();
    this.#showReport(run);
    this.#showReader(run);
    this.#answer();
  }

  #draw() {
    const { people, pairs } = this.#assets;
    const lines = [...this.#runs.values()].map((run) => ({
      points: run.points, text: `ε = ${run.epsilon}`, kind: run === this.#run ? "" : "is-past",
    }));
    const best = percent(pairs.without_privacy);
    this.#chart.show(growth({
      lines: lines.sort((a, b) => b.kind.length - a.kind.length),
      levels: [
        { y: pairs.without_privacy, text: `without privacy: ${best}` },
        { y: pairs.nobody_asked, text: `nobody asked: ${percent(pairs.nobody_asked)}`, below: true },
      ],
      range: [0, people.length], domain: [0, 1.13], names: ["reports", "accuracy"],
      label: "Accuracy of the reader by number of reports; the table below has the numbers",
      format: (share) => percent(share, 0), formatX: counted,
    }));
    const reached = MILESTONES.filter((count) => count <= people.length);
    const rows = [...this.#runs.values()].map(({ epsilon, points }) => [
      `ε = ${epsilon}`,
      ...reached.map((count) => {
        const point = points.find(({ x }) => x === count);
        return point ? percent(point.y) : "–";
      }),
    ]);
    const headings = ["", ...reached.map((count) => `${counted(count)} reports`)];
    at("crowd-table").replaceChildren(
      rows.length ? table("Accuracy by number of reports", headings, rows)
        : element("p", { class: "small" }, "Nobody has reported yet."));
  }

  #showReport(run) {
    at("report-bytes").textContent = run?.last ? hexOf(run.last.report) : "–";
    if (!run?.last) {
      at("report-words").textContent =
        "No report yet. A report names several pairs of a kind of drawing and an answer.";
      this.#named.clear();
      return;
    }
    const { report, named } = run.last;
    const [k, d] = [this.#shares.length * this.#classes, named.length];
    const own = d / (d + (k - d) * Math.exp(-run.epsilon));
    const other = (d - own) / (k - 1);
    at("report-words").textContent =
      `The last report, ${report.length} bytes, names ${d} of ${k} pairs of a kind of drawing (rows) ` +
      `and an answer (columns). The person's own pair is among them with probability ` +
      `${percent(own, 0)}, any other with ${percent(other, 0)}.`;
    const chosen = new Set(named);
    this.#named.show((cell, answer) => (chosen.has(cell * this.#classes + answer) ? 1 : 0));
  }

  #showReader(run) {
    if (!run?.reader) {
      at("table-words").textContent =
        "Rows are kinds of public drawings that look alike; nobody has said which digits they show.";
      this.#learnt.clear();
      return;
    }
    const { reader } = run;
    at("table-words").textContent = reader.evidence
      ? "The stronger the colour, the likelier is this answer (column) to this kind of drawing (row)."
      : "So far, what the reports say could be noise alone: many of these answers are wrong.";
    this.#learnt.show((cell, answer) => reader.table[cell][answer], true);
  }

  #announce() {
    const run = this.#run;
    if (!run?.sums.count) return;
    at("crowd-status").textContent =
      `${counted(run.sums.count)} reports at ε = ${run.epsilon}: the reader is right on ` +
      `${percent(run.points.at(-1).y)} of the held-out drawings.`;
  }

  // ---- Asking the reader

  #offerDrawings() {
    const drawing = new Drawing(at("try"));
    const read = () => {
      const image = drawing.image();
      this.#tried = image && this.#cellOf(this.#assets.vectorOf(image));
      this.#answer();
    };
    at("try").addEventListener("stroke", read);
    at("try").addEventListener("drawn", read);
    at("try-erase").addEventListener("click", () => {
      drawing.clear();
      read();
    });
    this.#assets.examples.forEach(({ digit, image }) => {
      const canvas = element("canvas");
      showImage(canvas, image);
      const label = { type: "button", "aria-label": `Try a ${digit}` };
      at("try-examples").append(
        element("button", { ...label, onclick: () => drawing.paint(image) }, canvas));
    });
  }

  /** Show the reader's answer for the drawing. */
  #answer() {
    const reader = this.#run?.reader;
    const ready = reader && this.#tried !== null;
    at("try-answer").textContent = ready ? reader.answer(this.#tried) : "–";
    const likely = ready && percent(Math.max(...reader.table[this.#tried]), 0);
    at("try-words").textContent = !reader
      ? "The reader has learnt nothing yet: let people report."
      : ready
        ? `is the reader's answer, with an estimated probability of ${likely}, learnt from ` +
          `${counted(this.#run.sums.count)} reports at ε = ${this.#run.epsilon}.`
        : "Draw a digit, or choose one.";
  }
}

/** A table of kinds of drawings by answers. */
class Grid {
  #cells;

  constructor(place, kinds, classes, caption) {
    const answers = Array.from({ length: classes }, (_, answer) => answer);
    this.#cells = kinds.map(() => answers.map(() => element("td")));
    const rows = kinds.map((image, cell) => {
      const canvas = element("canvas", { role: "img", "aria-label": `kind ${cell + 1}` });
      if (image) showImage(canvas, image);
      const head = image ? canvas : `${cell + 1}`;
      return element("tr", {}, element("th", { scope: "row" }, head), this.#cells[cell]);
    });
    const names = answers.map((answer) => element("th", { scope: "col" }, `${answer}`));
    place.append(element("table", { class: "pairs" },
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "kind"), names)),
      element("tbody", {}, rows)));
  }

  /** Shade every cell by a share; `numbers` writes the largest of a row in %. */
  show(share, numbers = false) {
    this.#cells.forEach((row, kind) => {
      const shares = row.map((_, answer) => share(kind, answer));
      const most = shares.indexOf(Math.max(...shares));
      row.forEach((cell, answer) => {
        const value = shares[answer];
        cell.style.setProperty("--share", value);
        cell.classList.toggle("is-most", numbers && answer === most);
        const named = value ? "×" : "";
        cell.textContent = numbers ? (answer === most ? (100 * value).toFixed(0) : "") : named;
      });
    });
  }

  clear() {
    this.show(() => 0);
  }
}

/** Return the numbers 0 … count − 1 in random order: only who comes first depends on it. */
function shuffled(count) {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
