/** Means and shares with error bars, in pages, of everyone or of one group. */

import { errorBars, resizingChart } from "../shared/charts.js";
import { element, table } from "../shared/dom.js";
import { counted, number, percent } from "./words.js";

const PER_PAGE = 32;
const EVERYONE = "everyone";

/** A section with a chart and a table of one kind of estimates. */
class Section {
  #chart = resizingChart();
  #numbers = element("div");
  #range = element("span", { class: "range" });
  #previous = this.#button("Previous", -PER_PAGE);
  #next = this.#button("Next", PER_PAGE);
  #pager = element("div", { class: "controls" }, this.#previous, this.#next, this.#range);
  #first = 0;
  #entry = null;
  #options;

  /** Names of the values, or null: then their indices are shown. */
  names = null;

  constructor(options) {
    this.#options = options;
    this.node = element("div", {},
      element("h3", {}, options.title),
      element("p", { class: "small" }, options.description),
      this.#pager, this.#chart.node,
      element("details", {},
        element("summary", {}, `${options.title} as a table`), this.#numbers));
    this.node.hidden = true;
  }

  #button(text, by) {
    const turn = () => {
      this.#first += by;
      this.show(this.#entry);
    };
    return element("button", { type: "button", onclick: turn }, text);
  }

  show(entry) {
    const values = entry?.[this.#options.values];
    this.node.hidden = !values;
    this.#entry = entry;
    if (!values) return;
    const lastPage = PER_PAGE * Math.floor((values.length - 1) / PER_PAGE);
    this.#first = Math.max(0, Math.min(this.#first, lastPage));
    const end = Math.min(this.#first + PER_PAGE, values.length);
    this.#pager.hidden = values.length <= PER_PAGE;
    this.#previous.disabled = this.#first === 0;
    this.#next.disabled = end === values.length;
    this.#range.textContent = `${this.#first} to ${end - 1} of ${values.length}`;
    const page = (key) => entry[key]?.slice(this.#first, end) ?? null;
    this.#draw(entry, page(this.#options.values), page(this.#options.errors),
      page(this.#options.low), page(this.#options.high));
  }

  #draw(entry, values, errors, lows, highs) {
    const { name, title, format, bars } = this.#options;
    const ends = lows ? lows.map((low, i) => [low, highs[i]])
      : errors && values.map((value, i) => [value - 2 * errors[i], value + 2 * errors[i]]);
    const group = entry.group ?? EVERYONE;
    this.#chart.show(errorBars({
      values, ends, first: this.#first, bars, names: [name, title.toLowerCase()], format,
      label: `${title} with error bars, of ${group}; the table below has the numbers`,
    }));
    const rows = values.map((value, i) => [
      this.names?.[this.#first + i] ?? `${this.#first + i}`, format(value),
      errors ? `± ${format(errors[i])}` : "unknown",
      ...(lows ? [`${format(lows[i])} to ${format(highs[i])}`] : []),
    ]);
    const headings = [name, "estimate", "standard error", ...(lows ? ["95 % interval"] : [])];
    this.#numbers.replaceChildren(table(title, headings, rows));
  }
}

/** Return the part of a round's page that shows its estimates. */
export function estimates() {
  const shares = new Section({
    title: "Shares", values: "shares", errors: "shares_error",
    low: "shares_low", high: "shares_high",
    name: "symbol", format: percent, bars: true,
    description: "The share of people with each symbol. Estimates from noisy reports are unbiased, "
      + "so a small share can come out negative. Error bars are 95 % intervals: all of them "
      + "together contain the true shares in at least 95 of 100 rounds, for any population whose "
      + "devices report honestly, one report per person.",
  });
  const means = new Section({
    title: "Means", values: "mean", errors: "standard_error",
    name: "coordinate", format: number, bars: false,
    description: "The mean of people's vectors, each clipped to the release's radius. Error bars "
      + "are ± 2 standard errors: about 95 of 100 such intervals contain it, for any population "
      + "whose devices report honestly. "
      + "If longer vectors were clipped, the mean of the vectors themselves is further out.",
  });
  const select = element("select", { id: "group", onchange: () => showSelected() });
  const chooser = element("div", { class: "controls" },
    element("label", { for: "group" }, "Group"), select);
  const source = element("p", { class: "small" });
  let entries = [];

  function showSelected() {
    const entry = entries.find(({ group }) => (group ?? "") === select.value) ?? entries[0];
    source.textContent = entry ? `From ${counted(entry.reports, "report")}.` : "No reports yet.";
    shares.show(entry);
    means.show(entry);
  }

  function updateGroups() {
    const groups = entries.map(({ group }) => group ?? "");
    const options = [...select.options].map(({ value }) => value);
    chooser.hidden = groups.length < 2;
    if (groups.join("\n") === options.join("\n")) return;
    const selected = select.value;
    select.replaceChildren(
      ...groups.map((value) => element("option", { value }, value || EVERYONE)));
    select.value = groups.includes(selected) ? selected : "";
  }

  return {
    node: element("div", {}, chooser, source, shares.node, means.node),
    update(totals) {
      entries = totals.means;
      shares.names = totals.names ?? null;
      updateGroups();
      showSelected();
    },
  };
}
