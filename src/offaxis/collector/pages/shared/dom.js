/** Making elements. Text is always set as text, so nothing that was sent can become markup. */

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * Make an HTML element.
 * @param {string} name
 * @param {Object<string, any>} [attributes] listeners as onclick, onsubmit, …
 * @param {...any} children elements and text; null is left out
 */
export const element = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

/** Make an SVG element. */
export const drawn = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

/** Make a table that can be scrolled to and over by keyboard; the first cell of a row names it. */
export function table(caption, names, rows, wordy = []) {
  const style = (at) => (wordy.includes(at) ? "words" : null);
  const head = names.map((name, at) => element("th", { scope: "col", class: style(at) }, name));
  const body = rows.map((cells) =>
    element("tr", {}, cells.map((cell, at) =>
      at ? element("td", { class: style(at) }, cell) : element("th", { scope: "row" }, cell))));
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    element("table", {},
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
}

/** Make a list of names and what they stand for. */
export const facts = (rows) => element("dl", { class: "facts" },
  rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
