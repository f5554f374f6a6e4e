/** The normal law in double precision, for public maps and scales; no private decision uses it. */

const ROOT = Math.sqrt(2 * Math.PI);
const EDGE = 1; // the series below, the continued fraction from here on

/** Return φ(x). */
export function density(x) {
  return Math.exp((-x * x) / 2) / ROOT;
}

/** Return Pr[0 <= Z < x], x >= 0, to a few units in the last place. */
export function centre(x) {
  if (x >= EDGE) return 0.5 - tail(x);
  // φ(x) Σ x^{2n+1} / (1·3·…·(2n + 1)): every term is positive.
  let [term, sum] = [x, x];
  for (let odd = 3; term > sum * 1e-17; odd += 2) {
    term *= (x * x) / odd;
    sum += term;
  }
  return density(x) * sum;
}

/** Return Pr[Z >= x], x >= 0, to a few units in the last place. */
export function tail(x) {
  if (x < EDGE) return 0.5 - centre(x);
  // Laplace's continued fraction φ(x) / (x + 1/(x + 2/(x + …))), evaluated backwards.
  let rest = x;
  for (let n = 20 + Math.ceil(200 / (x * x)); n > 0; n--) rest = x + n / rest;
  return density(x) / rest;
}

/** Return Φ(x). */
export function cumulative(x) {
  return x < 0 ? tail(-x) : 0.5 + centre(x);
}

/** Return Φ^{-1}((2k + 1)/2**17) for k = 2**15 … 2**16 − 1: ascending and positive. */
export function upperQuantiles() {
  const half = 1 << 15;
  const quantiles = new Float64Array(half);
  let x = 0;
  for (let k = 0; k < half; k++) {
    const probability = (2 * k + 1) / 2 ** 17;
    // Start at the previous quantile; the error after a Halley step is of the order of its cube.
    for (let step = 1; Math.abs(step) > 1e-5; ) {
      const gap = centre(x) - probability;
      const newton = gap / density(x);
      step = newton / (1 + (x * newton) / 2);
      x -= step;
    }
    quantiles[k] = x;
  }
  return quantiles;
}
