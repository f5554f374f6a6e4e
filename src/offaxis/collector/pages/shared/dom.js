/** Creating elements. Text is always inserted as text, so no received data can become markup. */

const SVG = "http://www.w3.org/2000/svg";

const isMissing = (value) => value === null || value === undefined;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && !isMissing(value)) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => !isMissing(child)));
  return node;
}

/**
 * Create an HTML element.
 * @param {string} name
 * @param {Object<string, any>} [attributes] listeners as onclick, onsubmit, …
 * @param {...any} children elements and text; null and undefined are left out
 */
export const element = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

/** Create an SVG element. */
export const drawn = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

/**
 * Create a table that can be scrolled by keyboard; the first cell of a row is its header.
 * `textColumns` are the indices of columns with text instead of numbers.
 */
export function table(caption, names, rows, textColumns = []) {
  const style = (i) => (textColumns.includes(i) ? "words" : null);
  const head = names.map((name, i) => element("th", { scope: "col", class: style(i) }, name));
  const body = rows.map((cells) =>
    element("tr", {}, cells.map((cell, i) =>
      i ? element("td", { class: style(i) }, cell) : element("th", { scope: "row" }, cell))));
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    element("table", {},
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
}

/** Create a list of names and values. */
export const facts = (rows) => element("dl", { class: "facts" },
  rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
