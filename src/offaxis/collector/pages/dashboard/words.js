/** Numbers and times formatted for people. */

import { element } from "../shared/dom.js";

const integers = new Intl.NumberFormat("en");
const times = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const count = (value) => integers.format(value);
export const counted = (value, name) => `${count(value)} ${name}${value === 1 ? "" : "s"}`;

/** Format a number with four significant digits; with three and an exponent if tiny or huge. */
export const number = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : `${+value.toPrecision(4)}`;
};

/** Return ε, and δ if the guarantee is not pure. */
export const promised = ({ epsilon, delta, pure }) =>
  pure ? `ε = ${epsilon}` : `ε = ${epsilon}, δ = ${delta}`;

export const percent = (value) => `${+(100 * value).toFixed(1)} %`;

/** Return a time in the reader's time zone. */
export const time = (text) => element("time", { datetime: text }, times.format(new Date(text)));

export const short = (hash) => hash.slice(0, 12);

export const badge = (state, text = state) =>
  element("span", { class: "badge", "data-state": state }, text);
