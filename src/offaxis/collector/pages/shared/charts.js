/** Charts in SVG, drawn for the width that they have, so that their words never shrink. */

import { drawn, element } from "./dom.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [240, 58, 14, 14, 40];

/**
 * Make a place for a chart, which is drawn again when its width changes.
 * @returns {{node: HTMLElement, show: (draw: (width: number) => SVGElement) => void}}
 */
export function place() {
  const node = element("div", { class: "chart" });
  let draw = null;
  let width = 0;
  const paint = () => {
    if (draw && width) node.replaceChildren(draw(width));
  };
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found === width) return;
    width = found;
    paint();
  }).observe(node);
  return { node, show(next) { draw = next; paint(); } };
}

/** Return round numbers that cover a range, about so many. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

function covering(values, padding = 0.06) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = (high - low || Math.abs(high) || 1) * padding;
  return [low - pad, high + pad];
}

const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);

/** Draw the frame: horizontal lines with their numbers, and the names of both axes. */
function frame(width, label, domain, names, format) {
  const y = scale(domain, HEIGHT - BOTTOM, TOP);
  const svg = drawn("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const value of ticks(...domain)) {
    svg.append(
      drawn("line", { class: value ? "gridline" : "gridline zero", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      drawn("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  const middle = (LEFT + width - RIGHT) / 2;
  const turned = { transform: `translate(12 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" };
  svg.append(
    drawn("text", { x: middle, y: HEIGHT - 4, "text-anchor": "middle" }, names[0]),
    drawn("text", turned, names[1]));
  return { svg, y };
}

/**
 * Draw estimates with error bars of two standard errors.
 * @param {{values: number[], errors: number[] | null, first: number, bars: boolean, label: string,
 *   names: [string, string], format: (value: number) => string}} what `first`: number of the first one
 */
export const errorBars = (what) => (width) => {
  const reach = what.values.map((_, at) => (what.errors ? 2 * what.errors[at] : 0));
  const ends = what.values.flatMap((value, at) => [value - reach[at], value + reach[at]]);
  const domain = covering(what.bars ? [0, ...ends] : ends);
  const { svg, y } = frame(width, what.label, domain, what.names, what.format);
  const step = (width - LEFT - RIGHT) / what.values.length;
  const every = Math.ceil(26 / step);
  what.values.forEach((value, at) => {
    const x = LEFT + (at + 0.5) * step;
    const half = Math.min(step * 0.36, 22);
    const [zero, top] = [y(0), y(value)];
    if (what.bars) {
      svg.append(drawn("rect", { class: "bar", x: x - half, width: 2 * half, y: Math.min(zero, top), height: Math.abs(zero - top) }));
    }
    if (what.errors) {
      const [low, high] = [y(value - reach[at]), y(value + reach[at])];
      const cap = Math.min(half, 5);
      svg.append(drawn("path", { class: "error", d: `M${x} ${low}V${high}M${x - cap} ${low}h${2 * cap}M${x - cap} ${high}h${2 * cap}` }));
    }
    svg.append(drawn("circle", { class: "dot", cx: x, cy: top, r: Math.min(4, half) }));
    if (at % every === 0) {
      svg.append(drawn("text", { x, y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, `${what.first + at}`));
    }
  });
  return svg;
};

const path = (points, x, y, name = "y") =>
  points.map((point, at) => `${at ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("");

/**
 * Draw a curve with its band, its limit dashed, and one mark on the horizontal axis.
 * @param {{points: {x: number, y: number, low: number, high: number, limit: number | null}[],
 *   mark: {x: number, words: string} | null, label: string, names: [string, string],
 *   format: (value: number) => string}} what
 */
export const curve = (what) => (width) => {
  const limited = what.points.filter((point) => point.limit !== null);
  const heights = what.points.flatMap((point) => [point.low, point.high, point.limit ?? point.y]);
  const { svg, y } = frame(width, what.label, covering(heights), what.names, what.format);
  const places = what.points.map((point) => point.x).concat(what.mark ? [what.mark.x] : []);
  const across = covering(places, 0.04);
  const x = scale(across, LEFT, width - RIGHT);
  for (const value of ticks(...across, width / 45)) {
    svg.append(drawn("text", { x: x(value), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, `${+value.toPrecision(6)}`));
  }
  if (what.mark) {
    const at = x(what.mark.x);
    const right = at < width / 2;
    svg.append(
      drawn("line", { class: "mark", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
      drawn("text", { class: "marked", x: at + (right ? 6 : -6), y: HEIGHT - BOTTOM - 8, "text-anchor": right ? "start" : "end" }, what.mark.words));
  }
  const back = [...what.points].reverse();
  svg.append(
    drawn("path", { class: "band", d: `${path(what.points, x, y, "high")}${path(back, x, y, "low").replace("M", "L")}Z` }),
    drawn("path", { class: "line", d: path(what.points, x, y) }),
    drawn("path", { class: "limit", d: path(limited, x, y, "limit") }),
    ...what.points.map((point) => drawn("circle", { class: "dot", cx: x(point.x), cy: y(point.y), r: 3.5 })));
  return svg;
};
