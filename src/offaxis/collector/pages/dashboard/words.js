/** Numbers and times as people read them. */

import { element } from "../shared/dom.js";

const whole = new Intl.NumberFormat("en");
const when = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const count = (value) => whole.format(value);
export const counted = (value, name) => `${count(value)} ${name}${value === 1 ? "" : "s"}`;

/** Return a number with four digits, without trailing zeros or long tails. */
export const number = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : `${+value.toPrecision(4)}`;
};

export const percent = (value) => `${+(100 * value).toFixed(1)} %`;

/** Return a time in the reader's own zone. */
export const time = (text) => element("time", { datetime: text }, when.format(new Date(text)));

export const short = (hash) => hash.slice(0, 12);

export const badge = (state, words = state) => element("span", { class: "badge", "data-state": state }, words);
