/** A vector as a bar chart; positive values point up. */

import { drawn, element } from "../shared/dom.js";

const [STEP, WIDTH, HALF] = [10, 7, 40];

/** Show a vector in a figure with an <svg>, a .scale, and an <ol> for the numbers. */
export function showBars(figure, vector) {
  const largest = Math.max(...vector.map(Math.abs)) || 1;
  const svg = figure.querySelector("svg");
  svg.setAttribute("viewBox", `0 0 ${STEP * vector.length} ${2 * HALF}`);
  const bars = Array.from(vector, (value, i) => {
    const height = (Math.abs(value) / largest) * HALF;
    const y = value < 0 ? HALF : HALF - height;
    return drawn("rect", { x: STEP * i + (STEP - WIDTH) / 2, y, width: WIDTH, height });
  });
  const axis = { x1: 0, x2: STEP * vector.length, y1: HALF, y2: HALF };
  svg.replaceChildren(...bars, drawn("line", axis));
  const range = [Math.min(...vector), Math.max(...vector)].map((value) => rounded(value));
  svg.setAttribute("aria-label", `${vector.length} numbers from ${range[0]} to ${range[1]}`);
  figure.querySelector(".scale").textContent = `Full height: ${rounded(largest)}.`;
  const items = Array.from(vector, (value) => element("li", {}, value.toFixed(4)));
  figure.querySelector("ol").replaceChildren(...items);
}

const rounded = (value) => (Math.abs(value) < 100 ? value.toFixed(1) : value.toFixed(0));
