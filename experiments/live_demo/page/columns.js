/** The two columns: the report of each release, and what a collector decodes from it. */

import { showBars } from "./bars.js";

const TITLES = {
  plain: "4a. The paper's plain mechanism",
  recommended: "4b. The recommended release",
};
const percent = (share) => `${(100 * share).toFixed(share < 0.995 ? 0 : 1)} %`;

/** Write bytes in hexadecimal, in groups of four. */
export function hexOf(bytes) {
  const text = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/.{8}(?=.)/g, "$& ");
}

/** One column, updated with every report. */
export class Column {
  #part;

  constructor(kind, place, template) {
    this.kind = kind;
    const copy = template.content.cloneNode(true);
    this.#part = (selector) => this.section.querySelector(selector);
    this.section = copy.querySelector("section");
    this.section.id = kind;
    this.#part("h2").textContent = TITLES[kind];
    this.#part("h2").id = `${kind}-title`;
    this.section.setAttribute("aria-labelledby", `${kind}-title`);
    place.append(copy);
  }

  /** Show a report, its decoded vector, and whether the answer is the one without privacy. */
  show({ title, agreement }, report, decoded, answer, own) {
    this.#head(title, "");
    this.#part(".report").textContent = hexOf(report);
    this.#part(".size").textContent =
      `${report.length} bytes. The vector would be ${4 * decoded.length} bytes, the drawing 784.`;
    showBars(this.#part("figure"), decoded);
    this.#part(".answer").textContent = answer;
    const same = answer === own;
    this.#part(".words").textContent = same
      ? "is the answer without privacy"
      : `is not the answer without privacy, ${own}`;
    this.section.dataset.right = same;
    this.#part(".expected").textContent =
      `On 12,000 public digits, simulated reports keep ${percent(agreement)} of the answers.`;
  }

  /** Show that no report was made, and why. */
  refuse({ title }, reason) {
    this.#head(title, `This release is refused, and no report was made: ${reason}`);
    this.section.removeAttribute("data-right");
  }

  /** Show that the drawing is empty. */
  clear() {
    this.#head("Draw a digit, or choose an example.", "");
    this.#part(".outcome").hidden = true;
  }

  #head(title, refusal) {
    this.#part(".title").textContent = title;
    this.#part(".refused").textContent = refusal;
    this.#part(".refused").hidden = !refusal;
    this.#part(".outcome").hidden = Boolean(refusal);
  }
}
