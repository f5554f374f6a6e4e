/** The demo page: from a drawing to a vector, two reports, and their answers. */

import { element } from "../shared/dom.js";
import { Assets, KINDS } from "./assets.js";
import { showBars } from "./bars.js";
import { Column } from "./columns.js";
import { Crowd } from "./crowd.js";
import { Drawing, SIDE, showImage } from "./drawing.js";
import { offerSending } from "./sending.js";
import { Tally } from "./tally.js";

const REPEATS = 100;
const TILT = 12; // largest tilt of a random digit, in degrees
const at = (id) => document.getElementById(id);

class Page {
  #vector = null;
  #own = null;
  #turn = 0;

  constructor(assets) {
    this.assets = assets;
    this.drawing = new Drawing(at("canvas"));
    this.columns = KINDS.map((kind) => new Column(kind, at("columns"), at("column")));
    this.tally = new Tally(at("tally"), KINDS);
    at("canvas").addEventListener("stroke", () => this.#encode());
    at("canvas").addEventListener("drawn", () => this.#drawn());
    at("epsilon").addEventListener("input", () => this.#budget());
    at("clear").addEventListener("click", () => this.#clear());
    at("random").addEventListener("click", () => this.#random());
    at("again").addEventListener("click", () => this.report());
    at("many").addEventListener("click", () => this.#repeat());
    this.#offerExamples();
    this.#budget();
  }

  /** The vector of the drawing, or null. */
  get vector() {
    return this.#vector;
  }

  get #row() {
    const epsilon = Number(at("epsilon").value);
    return this.assets.rows.find((row) => row.epsilon === epsilon);
  }

  #offerExamples() {
    this.assets.examples.forEach(({ digit, image }) => {
      const canvas = element("canvas");
      showImage(canvas, image);
      const label = { type: "button", "aria-label": `Example of a ${digit}` };
      const onclick = () => this.drawing.paint(image);
      at("examples").append(element("button", { ...label, onclick }, canvas));
    });
  }

  #random() {
    const { examples } = this.assets;
    const { image } = examples[Math.floor(Math.random() * examples.length)];
    return this.drawing.paint(image, TILT * (2 * Math.random() - 1));
  }

  #clear() {
    this.drawing.clear();
    this.#drawn();
  }

  /** Run the network on the drawing. */
  #encode() {
    const image = this.drawing.image();
    this.#vector = image && this.assets.vectorOf(image);
    this.#own = image && this.assets.head.answer(this.#vector);
    showImage(at("seen"), image ?? new Uint8Array(SIDE * SIDE));
    at("own").textContent = image ? this.#own : "–";
    showBars(at("vector"), this.#vector ?? new Float64Array(this.assets.encoder.size));
  }

  #drawn() {
    this.#encode();
    this.tally.reset();
    return this.report();
  }

  #budget() {
    const { epsilon } = this.#row;
    const factor = Math.exp(epsilon);
    const shown = factor < 100 ? factor.toPrecision(3) : Math.round(factor).toLocaleString("en");
    at("budget").textContent = `ε = ${epsilon}`;
    at("epsilon").setAttribute("aria-valuetext", `ε = ${epsilon}`);
    at("odds").textContent =
      "One report changes a reader's odds between any two drawings by a factor of " +
      `at most e^ε = ${shown}.`;
    this.tally.reset();
    return this.report();
  }

  /** Make a fresh report of each kind and show it. */
  async report() {
    const turn = ++this.#turn;
    at("again").disabled = at("many").disabled = !this.#vector;
    if (!this.#vector) this.columns.forEach((column) => column.clear());
    else await Promise.all(this.columns.map((column) => this.#fill(column, turn)));
    if (turn !== this.#turn) return;
    this.tally.show();
    this.#showCost();
    document.dispatchEvent(new Event("shown"));
  }

  async #fill(column, turn) {
    const [row, own] = [this.#row, this.#own];
    const listed = row[column.kind];
    try {
      const { report, decoded, answer } = await this.#makeReport(column.kind, row);
      if (turn !== this.#turn) return;
      column.show(listed, report, decoded, answer, own);
      this.tally.count(column.kind, answer === own);
    } catch (error) {
      if (turn === this.#turn) column.refuse(listed, error.message);
    }
  }

  /** Return a fresh report, its decoded vector and the network's answer. */
  async #makeReport(kind, row) {
    const release = await this.assets.release(kind, row);
    const report = await release.privatize(this.#vector);
    const decoded = await release.decode(report);
    return { report, decoded, answer: this.assets.head.answer(decoded) };
  }

  /** Make many reports and count their answers; a new drawing or budget stops it. */
  async #repeat() {
    const [turn, row, own] = [this.#turn, this.#row, this.#own];
    at("many").disabled = true;
    for (let i = 0; i < REPEATS && turn === this.#turn; i++) {
      for (const kind of KINDS) {
        const result = await this.#makeReport(kind, row).catch(() => null);
        if (result && turn === this.#turn) this.tally.count(kind, result.answer === own);
      }
      if (i % 10 === 9) {
        this.tally.show();
        await new Promise((resume) => setTimeout(resume));
      }
    }
    if (turn !== this.#turn) return;
    at("many").disabled = false;
    this.#showCost();
    document.dispatchEvent(new Event("counted"));
  }

  #showCost() {
    const [{ epsilon }, { reports }] = [this.#row, this.tally];
    at("cost").textContent = this.#vector
      ? `Every report costs ε. You have made ${reports} of each kind from this drawing: sending all of one ` +
        `kind would cost ε = ${epsilon * reports}. A device pays before it reports, and reports once per round.`
      : "Draw a digit first.";
  }
}

async function start() {
  const progress = (done, total) => {
    at("status").textContent = `Loading networks and releases: ${done} of ${total} files…`;
  };
  try {
    const assets = await Assets.open(progress);
    const page = new Page(assets);
    new Crowd(assets);
    at("tool").hidden = false;
    at("status").textContent = "Ready. Everything is loaded; the page now works offline.";
    await offerSending(page);
  } catch (error) {
    at("status").textContent = `The page could not be loaded: ${error.message}. Reload it.`;
  }
}

start();
