/** SVG charts, drawn for their current width, so that their text is never scaled. */

import { drawn, element } from "./dom.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [240, 58, 14, 14, 40];

/**
 * Return a chart that is drawn again when its width changes.
 * @returns {{node: HTMLElement, show: (draw: (width: number) => SVGElement) => void}}
 */
export function resizingChart() {
  const node = element("div", { class: "chart" });
  let draw = null;
  let width = 0;
  const paint = () => {
    if (draw && width) node.replaceChildren(draw(width));
  };
  new ResizeObserver(([entry]) => {
    const current = Math.floor(entry.contentRect.width);
    if (current === width) return;
    width = current;
    paint();
  }).observe(node);
  return { node, show(next) { draw = next; paint(); } };
}

/** Return about `count` round numbers that cover a range. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

function paddedRange(values, padding = 0.06) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = (high - low || Math.abs(high) || 1) * padding;
  return [low - pad, high + pad];
}

const scale = ([low, high], from, to) => (value) =>
  from + ((value - low) / (high - low)) * (to - from);

/** Draw the frame: horizontal grid lines with their numbers, and the names of both axes. */
function frame(width, label, domain, names, format) {
  const y = scale(domain, HEIGHT - BOTTOM, TOP);
  const viewBox = `0 0 ${width} ${HEIGHT}`;
  const svg = drawn("svg", { width, height: HEIGHT, viewBox, role: "img", "aria-label": label });
  for (const value of ticks(...domain)) {
    const [line, height] = [value ? "gridline" : "gridline zero", y(value)];
    svg.append(
      drawn("line", { class: line, x1: LEFT, x2: width - RIGHT, y1: height, y2: height }),
      drawn("text", { x: LEFT - 8, y: height + 4, "text-anchor": "end" }, format(value)));
  }
  const centre = { x: (LEFT + width - RIGHT) / 2, y: (TOP + HEIGHT - BOTTOM) / 2 };
  const rotated = { transform: `translate(12 ${centre.y}) rotate(-90)`, "text-anchor": "middle" };
  svg.append(
    drawn("text", { x: centre.x, y: HEIGHT - 4, "text-anchor": "middle" }, names[0]),
    drawn("text", rotated, names[1]));
  return { svg, y };
}

const tickLabel = (x, text) =>
  drawn("text", { x, y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, text);

/** Return a text that fits into a width, with an ellipsis if it had to be cut. */
const fitting = (text, width) => {
  const most = Math.max(1, Math.floor(width / 7.5));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
};

/**
 * Draw estimates with error bars.
 * @param {{values: number[], ends: [number, number][] | null, first: number, bars: boolean,
 *   label: string, names: [string, string], format: (value: number) => string,
 *   labels?: string[] | null, edges?: string[] | null, marks?: number[] | null}} options
 *   `ends` are those of the error bars; `first` is the index of the first value. Values are named
 *   by their index, by `labels`, or, in a histogram, by the `edges` between them. `marks` are other
 *   values to compare with, drawn as short lines.
 */
export const errorBars = (options) => (width) => {
  const { values, ends, first, bars, label, names, format } = options;
  const { labels = null, edges = null, marks = null } = options;
  const domain = paddedRange(
    [...values, ...(ends?.flat() ?? []), ...(marks ?? []), ...(bars ? [0] : [])]);
  const { svg, y } = frame(width, label, domain, names, format);
  const step = (width - LEFT - RIGHT) / values.length;
  const space = edges ? 58 : labels ? 44 : 26;
  const labelled = Math.ceil(space / step);
  values.forEach((value, i) => {
    const x = LEFT + (i + 0.5) * step;
    const half = edges ? step * 0.48 : Math.min(step * 0.36, 22);
    const [zero, top] = [y(0), y(value)];
    if (bars) {
      const box = { y: Math.min(zero, top), height: Math.abs(zero - top) };
      svg.append(drawn("rect", { class: "bar", x: x - half, width: 2 * half, ...box }));
    }
    if (marks) {
      const reach = Math.min(half + 4, step / 2);
      svg.append(drawn("path", { class: "other", d: `M${x - reach} ${y(marks[i])}h${2 * reach}` }));
    }
    if (ends) {
      const [low, high] = ends[i].map(y);
      const cap = Math.min(half, 5);
      const caps = [low, high].map((end) => `M${x - cap} ${end}h${2 * cap}`).join("");
      svg.append(drawn("path", { class: "error", d: `M${x} ${low}V${high}${caps}` }));
    }
    svg.append(drawn("circle", { class: "dot", cx: x, cy: top, r: Math.min(4, half) }));
    if (i % labelled) return;
    if (edges) svg.append(tickLabel(x - step / 2, edges[i]));
    else svg.append(tickLabel(x, labels ? fitting(labels[i], labelled * step - 6) : `${first + i}`));
  });
  if (edges && values.length % labelled === 0) {
    svg.append(drawn("text",
      { x: width, y: HEIGHT - BOTTOM + 17, "text-anchor": "end" }, edges[values.length]));
  }
  return svg;
};

const path = (points, x, y, name = "y") =>
  points.map((point, i) =>
    `${i ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("");

/**
 * Draw a curve with its band, its limit dashed, and one mark on the horizontal axis.
 * @param {{points: {x: number, y: number, low: number, high: number, limit: number | null}[],
 *   mark: {x: number, text: string} | null, label: string, names: [string, string],
 *   format: (value: number) => string}} options
 */
export const curve = ({ points, mark, label, names, format }) => (width) => {
  const limited = points.filter((point) => point.limit !== null);
  const heights = points.flatMap((point) => [point.low, point.high, point.limit ?? point.y]);
  const { svg, y } = frame(width, label, paddedRange(heights), names, format);
  const range = paddedRange([...points.map((point) => point.x), ...(mark ? [mark.x] : [])], 0.04);
  const x = scale(range, LEFT, width - RIGHT);
  for (const value of ticks(...range, width / 45)) {
    svg.append(tickLabel(x(value), `${+value.toPrecision(6)}`));
  }
  if (mark) {
    const at = x(mark.x);
    const side = at < width / 2
      ? { x: at + 6, "text-anchor": "start" } : { x: at - 6, "text-anchor": "end" };
    svg.append(
      drawn("line", { class: "mark", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
      drawn("text", { class: "marked", y: HEIGHT - BOTTOM - 8, ...side }, mark.text));
  }
  const upper = path(points, x, y, "high");
  const lower = path([...points].reverse(), x, y, "low").replace("M", "L");
  svg.append(
    drawn("path", { class: "band", d: `${upper}${lower}Z` }),
    drawn("path", { class: "line", d: path(points, x, y) }),
    drawn("path", { class: "limit", d: path(limited, x, y, "limit") }),
    ...points.map((point) =>
      drawn("circle", { class: "dot", cx: x(point.x), cy: y(point.y), r: 3.5 })));
  return svg;
};

const LINE_HEIGHT = 14;

/**
 * Draw lines that grow within fixed ranges, with error bars if their points have them, and dashed
 * levels. A line with a text is named at its end.
 * @param {{lines: {points: {x: number, y: number, low?: number, high?: number}[], text: string,
 *   kind: "" | "is-past" | "is-alone" | "is-check"}[], levels: {y: number, text: string, below?: boolean}[],
 *   range: [number, number], domain: [number, number], label: string, names: [string, string],
 *   format: (value: number) => string, formatX: (value: number) => string}} options
 */
export const growth = (options) => (width) => {
  const { lines, levels, range, domain, label, names, format, formatX } = options;
  const { svg, y } = frame(width, label, domain, names, format);
  const x = scale(range, LEFT, width - RIGHT - 12);
  for (const value of ticks(...range, Math.min(8, width / 60))) {
    svg.append(tickLabel(x(value), formatX(value)));
  }
  for (const { y: value, text, below } of levels) {
    const at = y(value);
    const place = below
      ? { x: width - RIGHT, y: at + 13, "text-anchor": "end" } : { x: LEFT + 6, y: at - 5 };
    svg.append(
      drawn("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      drawn("text", { class: "level", ...place }, text));
  }
  const ends = [];
  for (const { points, text, kind } of lines.filter((line) => line.points.length)) {
    const whiskers = points.filter((point) => point.low !== undefined).map(({ x: at, low, high }) =>
      `M${x(at)} ${y(low)}V${y(high)}M${x(at) - 4} ${y(low)}h8M${x(at) - 4} ${y(high)}h8`);
    svg.append(drawn("g", { class: kind },
      drawn("path", { class: "error", d: whiskers.join("") }),
      drawn("path", { class: "line", d: path(points, x, y) }),
      whiskers.length
        ? points.map((point) => drawn("circle", { class: "dot", cx: x(point.x), cy: y(point.y), r: 4 }))
        : drawn("circle", { class: "dot", cx: x(points.at(-1).x), cy: y(points.at(-1).y), r: 3.5 })));
    if (text) ends.push({ x: x(points.at(-1).x), y: y(points.at(-1).y), text, kind });
  }
  // Names of lines that end close to each other are put below each other.
  const taken = [];
  for (const end of ends.sort((a, b) => a.y - b.y)) {
    let height = end.y + LINE_HEIGHT + 2;
    for (const other of taken) {
      const near = Math.abs(other.x - end.x) < 48;
      if (near && height < other.height + LINE_HEIGHT) height = other.height + LINE_HEIGHT;
    }
    taken.push({ x: end.x, height });
    svg.append(drawn("text", {
      class: `ending ${end.kind}`, x: Math.min(end.x + 4, width - 2), y: height,
      "text-anchor": "end",
    }, end.text));
  }
  return svg;
};
