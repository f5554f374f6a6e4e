/**
 * The length that makes a reported direction unbiased: the mean component A of PrivUnit in rank
 * form (docs/proofs.md, section 8). Used to read reports, never to make them.
 *
 * Of n pairs of directions c are near. Let a be the probability that a direction is nearer than an
 * edge x, and F(x) = E[t; t beyond x]. Then E Σ_{near} t = 2n E F(x) with a(x) ~ Beta(c, n − c).
 * The expectation is taken over x itself, so that nothing is inverted: x is the threshold of a
 * normal component, or the angle between the direction and the input.
 */

import { centre, density, tail } from "./normal.js";

const HALF_GAMMA_SERIES = [1, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304];
const PANELS = 64;
const HALVINGS = 30;
const DROP = 80; // densities below e^{−80} of the peak are left out
const [NODES, WEIGHTS] = gaussLegendre(20);

/** Return Γ(x + 1/2) / Γ(x), to rounding, for x >= 1/2. */
function halfGammaRatio(x) {
  let steps = 1;
  for (; x < 60; x++) steps *= x / (x + 0.5);
  const series = HALF_GAMMA_SERIES.reduceRight((sum, term) => sum / x + term, 0);
  return steps * Math.sqrt(x) * series;
}

/** Return nodes and weights on (−1, 1), by Newton's iteration on the Legendre polynomial. */
function gaussLegendre(count) {
  const nodes = [];
  const weights = [];
  for (let i = 0; i < count; i++) {
    let x = Math.cos((Math.PI * (i + 0.75)) / (count + 0.5));
    let slope = 0;
    for (let round = 0; round < 8; round++) {
      let [previous, value] = [1, x];
      for (let n = 2; n <= count; n++) {
        [previous, value] = [value, ((2 * n - 1) * x * value - (n - 1) * previous) / n];
      }
      slope = (count * (x * value - previous)) / (x * x - 1);
      x -= value / slope;
    }
    nodes.push(x);
    weights.push(2 / ((1 - x * x) * slope * slope));
  }
  return [nodes, weights];
}

/** Call visit(x, weight) at the nodes of panels between the edges. */
function integrate(edges, visit) {
  for (let panel = 1; panel < edges.length; panel++) {
    const half = (edges[panel] - edges[panel - 1]) / 2;
    const middle = edges[panel - 1] + half;
    NODES.forEach((node, i) => visit(middle + half * node, half * WEIGHTS[i]));
  }
}

const even = (low, high, panels) =>
  Array.from({ length: panels + 1 }, (_, i) => low + ((high - low) * i) / panels);

/** A normal component: x >= 0 is the threshold. */
function gaussianComponent(moment) {
  return {
    high: 37,
    logs: (x) => {
      const outside = 2 * tail(x);
      return [Math.log(outside), x < 1 ? Math.log(2 * centre(x)) : Math.log1p(-outside)];
    },
    logDensity: (x) => (-x * x) / 2,
    moment,
  };
}

/** The component of a uniform direction in R^dim, dim >= 2: x <= π/2 is the angle. */
function sphereComponent(dim) {
  const shape = (dim - 1) / 2;
  const scale = halfGammaRatio(shape) / Math.sqrt(Math.PI);
  const logSine = (x) => {
    const cosine = Math.cos(x);
    return cosine < 0.5 ? Math.log1p(-cosine * cosine) / 2 : Math.log(Math.sin(x));
  };
  return {
    high: Math.PI / 2,
    logs: (x) => {
      const [sine2, cosine2] = [Math.sin(x) ** 2, Math.cos(x) ** 2];
      const front = scale * Math.exp(2 * shape * logSine(x)) * Math.cos(x);
      if (sine2 < (shape + 1) / (shape + 2.5)) {
        const inside = (front * betaFraction(shape, 0.5, sine2)) / shape;
        return [Math.log(inside), Math.log1p(-inside)];
      }
      const outside = (front * betaFraction(0.5, shape, cosine2)) / 0.5;
      return [Math.log1p(-outside), Math.log(outside)];
    },
    logDensity: (x) => (dim - 2) * logSine(x),
    moment: (x) => (scale / (dim - 1)) * Math.exp(2 * shape * logSine(x)),
  };
}

/** Return the continued fraction of the incomplete beta function, by Lentz's method. */
function betaFraction(a, b, x) {
  let c = 1;
  let d = 1 / (1 - ((a + b) * x) / (a + 1));
  let fraction = d;
  for (let n = 1, change = 2; Math.abs(change - 1) > 1e-16 && n < 100_000; n++) {
    const even = (n * (b - n) * x) / ((a + 2 * n - 1) * (a + 2 * n));
    d = 1 / (1 + even * d);
    c = 1 + even / c;
    fraction *= d * c;
    const odd = (-(a + n) * (a + b + n) * x) / ((a + 2 * n) * (a + 2 * n + 1));
    d = 1 / (1 + odd * d);
    c = 1 + odd / c;
    change = d * c;
    fraction *= change;
  }
  return fraction;
}

/** Return x ↦ E[t/‖v‖; t >= x] / E[t; t >= x] of a Gaussian v in R^dim, dim >= 2. */
function normalisingFactor(dim) {
  const constant = (Math.SQRT2 * halfGammaRatio((dim - 1) / 2)) / (dim - 1);
  const middle = Math.sqrt(dim - 0.5);
  const [low, high] = [Math.max(0, middle - 14), middle + 14];
  const doubling = Array.from({ length: 39 }, (_, i) => high * 2 ** (-1 - i));
  const edges = [...even(low, high, 29), ...doubling.filter((edge) => edge > low)];
  const lengths = [];
  let total = 0;
  integrate(edges.sort((a, b) => a - b), (s, weight) => {
    const logDensity = (dim - 1) * Math.log(s / middle) + (middle ** 2 - s * s) / 2;
    lengths.push([s, weight * Math.exp(logDensity)]);
    total += lengths.at(-1)[1];
  });
  return (x) => {
    const sum = lengths.reduce((sum, [s, w]) => sum + (w * s) / Math.sqrt(s * s + x * x), 0);
    return (constant * sum) / total;
  };
}

/** Return E F(x), a(x) ~ Beta(near, pairs − near). */
function expected(component, pairs, near) {
  const { high, logs, logDensity, moment } = component;
  const logWeight = (x) => {
    const [inside, outside] = logs(x);
    return (near - 1) * inside + (pairs - near - 1) * outside + logDensity(x);
  };
  const peak = highest(logWeight, high);
  const floor = logWeight(peak) - DROP;
  const low = edge(logWeight, floor, 0, peak);
  const edges = even(low, edge(logWeight, floor, high, peak), PANELS);
  // A moment may have a weak singularity at the edge of its range: panels halve towards it.
  for (let halving = 0; halving < HALVINGS; halving++) {
    edges.splice(1, 0, (edges[0] + edges[1]) / 2);
  }
  let [total, sum] = [0, 0];
  integrate(edges, (x, width) => {
    const weight = width * Math.exp(logWeight(x) - floor - DROP);
    total += weight;
    sum += weight * moment(x);
  });
  return sum / total;
}

/** Return the approximate maximum of a log-concave function on (0, high). */
function highest(f, high) {
  let [left, right] = [0, high];
  for (let round = 0; round < 100; round++) {
    const third = (right - left) / 3;
    if (f(left + third) < f(right - third)) left += third;
    else right -= third;
  }
  return (left + right) / 2;
}

/** Return the point between the peak and an end where f falls to the floor, or the end. */
function edge(f, floor, end, peak) {
  let [outside, inside] = [end, peak];
  for (let round = 0; round < 60; round++) {
    const middle = (outside + inside) / 2;
    if (f(middle) < floor) outside = middle;
    else inside = middle;
  }
  return outside;
}

/**
 * Return A, the expected component of the reported vector along the input.
 *
 * `law` is "angle" (PrivUnit2), "gaussian" or "sphere" (the outputs of PrivUnitG).
 */
export function meanComponent(law, dim, pairs, near, epsilon) {
  const normaliser = near + (2 * pairs - near) * Math.exp(-epsilon);
  const gain = (-Math.expm1(-epsilon) * 2 * pairs) / normaliser;
  if (law === "angle" && dim === 1) return (gain * near) / pairs / 2;
  return gain * momentOfNear(law, dim, pairs, near);
}

function momentOfNear(law, dim, pairs, near) {
  if (law === "angle") {
    const component = sphereComponent(dim);
    return near === pairs ? component.moment(component.high) : expected(component, pairs, near);
  }
  const factor = law === "sphere" && dim > 1 ? normalisingFactor(dim) : () => 1;
  const ofSign = law === "sphere" && dim === 1;
  const moment = ofSign ? tail : (x) => density(x) * factor(x);
  return near === pairs ? moment(0) : expected(gaussianComponent(moment), pairs, near);
}
