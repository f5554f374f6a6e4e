/** The demo page: a drawing becomes a vector, the vector two reports, each report an answer. */

import { element } from "../shared/dom.js";
import { showBars } from "./bars.js";
import { Column } from "./columns.js";
import { Drawing, SIDE } from "./drawing.js";
import { offerSending } from "./sending.js";
import { KINDS, Shelf } from "./shelf.js";
import { Tally } from "./tally.js";

const REPEATS = 100;
const TILT = 12; // degrees to either side of a random digit
const at = (id) => document.getElementById(id);

class Page {
  #vector = null;
  #own = null;
  #turn = 0;

  constructor(shelf) {
    this.shelf = shelf;
    this.drawing = new Drawing(at("canvas"));
    this.columns = KINDS.map((kind) => new Column(kind, at("columns"), at("column")));
    this.tally = new Tally(at("tally"), KINDS);
    at("canvas").addEventListener("stroke", () => this.#look());
    at("canvas").addEventListener("drawn", () => this.#drawn());
    at("epsilon").addEventListener("input", () => this.#budget());
    at("clear").addEventListener("click", () => this.#clear());
    at("random").addEventListener("click", () => this.#random());
    at("again").addEventListener("click", () => this.report());
    at("many").addEventListener("click", () => this.#repeat());
    this.#offerExamples();
    this.#budget();
  }

  /** The vector of what is drawn, or null. */
  get vector() {
    return this.#vector;
  }

  get #row() {
    const epsilon = Number(at("epsilon").value);
    return this.shelf.rows.find((row) => row.epsilon === epsilon);
  }

  #offerExamples() {
    this.shelf.examples.forEach(({ digit, image }) => {
      const canvas = element("canvas");
      showImage(canvas, image);
      const label = { type: "button", "aria-label": `Example of a ${digit}` };
      const onclick = () => this.drawing.paint(image);
      at("examples").append(element("button", { ...label, onclick }, canvas));
    });
  }

  #random() {
    const { examples } = this.shelf;
    const { image } = examples[Math.floor(Math.random() * examples.length)];
    return this.drawing.paint(image, TILT * (2 * Math.random() - 1));
  }

  #clear() {
    this.drawing.clear();
    this.#drawn();
  }

  /** Run the network on what is drawn. */
  #look() {
    const image = this.drawing.image();
    this.#vector = image && this.shelf.encoder.apply(Float64Array.from(image, (ink) => ink / 255));
    this.#own = image && this.shelf.head.answer(this.#vector);
    showImage(at("seen"), image ?? new Uint8Array(SIDE * SIDE));
    at("own").textContent = image ? this.#own : "–";
    showBars(at("vector"), this.#vector ?? new Float64Array(this.shelf.encoder.size));
  }

  #drawn() {
    this.#look();
    this.tally.reset();
    return this.report();
  }

  #budget() {
    const { epsilon } = this.#row;
    const factor = Math.exp(epsilon);
    const spoken = factor < 100 ? factor.toPrecision(3) : Math.round(factor).toLocaleString("en");
    at("budget").textContent = `ε = ${epsilon}`;
    at("epsilon").setAttribute("aria-valuetext", `ε = ${epsilon}`);
    at("odds").textContent =
      "Whoever reads one report may change the odds between any two drawings " +
      `by at most e^ε = ${spoken}.`;
    this.tally.reset();
    return this.report();
  }

  /** Make a fresh report of each kind and show what becomes of it. */
  async report() {
    const turn = ++this.#turn;
    at("again").disabled = at("many").disabled = !this.#vector;
    if (!this.#vector) this.columns.forEach((column) => column.clear());
    else await Promise.all(this.columns.map((column) => this.#fill(column, turn)));
    if (turn !== this.#turn) return;
    this.tally.show();
    this.#sayCost();
    document.dispatchEvent(new Event("shown"));
  }

  async #fill(column, turn) {
    const [row, own] = [this.#row, this.#own];
    const listed = row[column.kind];
    try {
      const found = await this.#once(column.kind, row);
      if (turn !== this.#turn) return;
      column.show(listed, found.report, found.decoded, found.answer, own);
      this.tally.count(column.kind, found.answer === own);
    } catch (error) {
      if (turn === this.#turn) column.refuse(listed, error.message);
    }
  }

  /** Return a fresh report with its decoded vector and the network's answer to that. */
  async #once(kind, row) {
    const release = await this.shelf.release(kind, row);
    const report = await release.privatize(this.#vector);
    const decoded = await release.decode(report);
    return { report, decoded, answer: this.shelf.head.answer(decoded) };
  }

  /** Make many reports and count; a new drawing or budget ends it. */
  async #repeat() {
    const [turn, row, own] = [this.#turn, this.#row, this.#own];
    at("many").disabled = true;
    for (let i = 0; i < REPEATS && turn === this.#turn; i++) {
      for (const kind of KINDS) {
        const found = await this.#once(kind, row).catch(() => null);
        if (found && turn === this.#turn) this.tally.count(kind, found.answer === own);
      }
      if (i % 10 === 9) {
        this.tally.show();
        await new Promise((resume) => setTimeout(resume));
      }
    }
    if (turn !== this.#turn) return;
    at("many").disabled = false;
    this.#sayCost();
    document.dispatchEvent(new Event("counted"));
  }

  #sayCost() {
    const [{ epsilon }, { reports }] = [this.#row, this.tally];
    const drawn = Boolean(this.#vector);
    at("cost").textContent = drawn
      ? `Each report would cost its own ε. Of this drawing you have seen ${reports} of each kind: sent, those of ` +
        `one kind would have cost ε = ${epsilon * reports}. A device pays before it reports, and reports ` +
        "once a round."
      : "Draw first.";
  }
}

/** Put a 28×28 image of ink on a canvas of that size. */
function showImage(canvas, image) {
  canvas.width = canvas.height = SIDE;
  const shown = new ImageData(SIDE, SIDE);
  image.forEach((ink, i) => (shown.data[4 * i + 3] = ink));
  canvas.getContext("2d").putImageData(shown, 0, 0);
}

async function start() {
  const told = (done, all) => {
    at("status").textContent = `Loading the page's networks and releases: ${done} of ${all} files…`;
  };
  try {
    const page = new Page(await Shelf.open(told));
    at("tool").hidden = false;
    at("status").textContent = "Ready. All is loaded: the page now works without a network.";
    await offerSending(page);
  } catch (error) {
    at("status").textContent = `The page could not be loaded: ${error.message}. Load it again.`;
  }
}

start();
