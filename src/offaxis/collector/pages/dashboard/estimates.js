/** Means and shares with error bars, a page of them at a time, of everybody or of one group. */

import { errorBars, place } from "../shared/charts.js";
import { element, table } from "../shared/dom.js";
import { counted, number, percent } from "./words.js";

const SHOWN = 32;
const EVERYBODY = "everybody";

/** A section with a chart and its numbers, filled by `update(entries)`. */
class Section {
  #chart = place();
  #numbers = element("div");
  #range = element("span", { class: "range" });
  #back = element("button", { type: "button", onclick: () => this.#turn(-SHOWN) }, "Previous");
  #on = element("button", { type: "button", onclick: () => this.#turn(SHOWN) }, "Next");
  #turning = element("div", { class: "controls" }, this.#back, this.#on, this.#range);
  #first = 0;
  #entry = null;
  #what;

  constructor(what) {
    this.#what = what;
    this.node = element("div", {},
      element("h3", {}, what.title),
      element("p", { class: "small" }, what.words),
      this.#turning, this.#chart.node,
      element("details", {}, element("summary", {}, `${what.title} as a table`), this.#numbers));
  }

  #turn(by) {
    this.#first += by;
    this.show(this.#entry);
  }

  show(entry) {
    const values = entry?.[this.#what.values];
    this.node.hidden = !values;
    this.#entry = entry;
    if (!values) return;
    const errors = entry[this.#what.errors];
    this.#first = Math.max(0, Math.min(this.#first, SHOWN * Math.floor((values.length - 1) / SHOWN)));
    const end = Math.min(this.#first + SHOWN, values.length);
    this.#turning.hidden = values.length <= SHOWN;
    this.#back.disabled = this.#first === 0;
    this.#on.disabled = end === values.length;
    this.#range.textContent = `${this.#first} to ${end - 1} of ${values.length}`;
    const shown = values.slice(this.#first, end);
    const shownErrors = errors && errors.slice(this.#first, end);
    const { name, title, format, bars } = this.#what;
    const label = `${title} with error bars, of ${entry.group ?? EVERYBODY}; the table below has the numbers`;
    this.#chart.show(errorBars({
      values: shown, errors: shownErrors, first: this.#first, bars, label, names: [name, title.toLowerCase()], format,
    }));
    const rows = shown.map((value, at) =>
      [`${this.#first + at}`, format(value), shownErrors ? `± ${format(shownErrors[at])}` : "unknown"]);
    this.#numbers.replaceChildren(table(title, [name, "estimate", "standard error"], rows));
  }
}

/** Make the part of a round's page with its estimates. */
export function estimates() {
  const shares = new Section({
    title: "Shares", values: "shares", errors: "shares_error", name: "symbol", format: percent, bars: true,
    words: "How many people have each symbol, estimated from noisy reports without bias, so a share may lie below 0. "
      + "Bars end two standard errors away: about 95 of 100 such bars hold the true share.",
  });
  const means = new Section({
    title: "Means", values: "mean", errors: "standard_error", name: "coordinate", format: number, bars: false,
    words: "The mean of people's vectors, decoded. Bars end two standard errors away: about 95 of 100 such bars hold the true mean.",
  });
  const select = element("select", { id: "group", onchange: () => choose() });
  const chooser = element("div", { class: "controls" }, element("label", { for: "group" }, "Group"), select);
  const behind = element("p", { class: "small" });
  let entries = [];

  function choose() {
    const entry = entries.find((one) => (one.group ?? "") === select.value) ?? entries[0];
    behind.textContent = entry ? `From ${counted(entry.reports, "report")}.` : "There are no reports yet.";
    shares.show(entry);
    means.show(entry);
  }

  function offer() {
    const wanted = entries.map((one) => one.group ?? "");
    const offered = [...select.options].map((one) => one.value);
    chooser.hidden = wanted.length < 2;
    if (wanted.join("\n") === offered.join("\n")) return;
    const chosen = select.value;
    select.replaceChildren(...wanted.map((value) => element("option", { value }, value || EVERYBODY)));
    select.value = wanted.includes(chosen) ? chosen : "";
  }

  return {
    node: element("div", {}, chooser, behind, shares.node, means.node),
    update(found) {
      entries = found.means;
      offer();
      choose();
    },
  };
}
