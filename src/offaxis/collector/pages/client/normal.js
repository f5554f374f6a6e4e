/** The normal law in double precision. Public maps and scales use it; no private decision does. */

const ROOT = Math.sqrt(2 * Math.PI);
const EDGE = 1; // below it the series, from it on the continued fraction

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
  // Laplace's continued fraction φ(x) / (x + 1/(x + 2/(x + …))), from behind.
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
    const wanted = (2 * k + 1) / 2 ** 17;
    // From the quantile before; a Halley step leaves the cube of what it moved.
    for (let step = 1; Math.abs(step) > 1e-5; ) {
      const gap = centre(x) - wanted;
      const newton = gap / density(x);
      step = newton / (1 + (x * newton) / 2);
      x -= step;
    }
    quantiles[k] = x;
  }
  return quantiles;
}
