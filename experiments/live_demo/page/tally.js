/** How often reports of one drawing give the answer without privacy. */

import { element } from "../shared/dom.js";

/** Counts reports of each kind; a new drawing or another ε resets it. */
export class Tally {
  #rows = new Map();

  constructor(body, kinds) {
    for (const kind of kinds) {
      const cells = [0, 1, 2].map(() => element("td"));
      body.append(element("tr", {}, element("th", { scope: "row" }, kind), cells));
      this.#rows.set(kind, { cells, reports: 0, right: 0 });
    }
    this.reset();
  }

  /** Set all counts to zero. */
  reset() {
    for (const row of this.#rows.values()) Object.assign(row, { reports: 0, right: 0 });
    this.show();
  }

  /** Count one report. */
  count(kind, right) {
    const row = this.#rows.get(kind);
    row.reports += 1;
    row.right += right ? 1 : 0;
  }

  /** The largest number of reports of one kind. */
  get reports() {
    return Math.max(...Array.from(this.#rows.values(), (row) => row.reports));
  }

  /** Write the counts into the table. */
  show() {
    for (const { cells, reports, right } of this.#rows.values()) {
      const share = reports ? `${((100 * right) / reports).toFixed(0)} %` : "–";
      [reports, right, share].forEach((value, i) => (cells[i].textContent = value));
    }
  }
}
