/**
 * From real vectors to integers whose bound is checked in integers: the front end of every report.
 *
 * Float clipping leaves the ball by an ulp about half the time. Here a sum of integers decides: it
 * is exact below 2**53, and beyond that too large for any bound.
 */

import { InvalidInput, OffaxisError } from "./errors.js";

const LENGTH_BOUND = 1 << 20;

function norm(vector, order) {
  let sum = 0;
  for (const x of vector) sum += order === 1 ? Math.abs(x) : x * x;
  return order === 1 ? sum : Math.sqrt(sum);
}

/** Divide by the largest magnitude, so that the norm can neither over- nor underflow. */
function rescaled(vector) {
  const peak = vector.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  if (peak === 0) return vector;
  // Tiny rows are scaled up first: 1 / peak overflows for subnormal ones.
  const lifted = peak < 2 ** -500 ? vector.map((x) => x * 2 ** 600) : vector;
  const scale = lifted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return lifted.map((x) => x / scale);
}

/** Project a vector radially onto the ball; a vector inside is unchanged. */
function project(vector, radius, order) {
  const share = radius / Math.max(norm(vector, order), radius);
  if (share > 1e-280) return vector.map((x) => x * share);
  // Below this the norm or the share is no longer a normal float64.
  const unit = rescaled(vector);
  const length = radius / norm(unit, order);
  return unit.map((x) => x * length);
}

/** Return the unit direction of a vector; zero stays zero. */
export function direction(vector) {
  const unit = rescaled(vector);
  const length = norm(unit, 2) || 1;
  return unit.map((x) => x / length);
}

/**
 * Clip a Float64Array to the ball and truncate toward zero onto the lattice of step radius/bound.
 *
 * Returns integers with Σ|n_i| <= bound (order 1) or Σ n_i² <= bound² (order 2), for every finite
 * vector.
 */
export function ontoLattice(vector, radius, order, bound) {
  const allowed = bound ** order;
  const clipped = project(vector, radius, order);
  if (!clipped.every(Number.isFinite)) {
    throw new InvalidInput("a vector must be finite to be rounded to the lattice");
  }
  // Adding zero turns −0 into 0.
  const steps = clipped.map(
    (x) => Math.max(-bound, Math.min(bound, Math.trunc((x / radius) * bound))) + 0,
  );
  let size = sizeOf(steps, order);
  while (size > allowed) {
    let largest = 0;
    steps.forEach((n, i) => {
      if (Math.abs(n) > Math.abs(steps[largest])) largest = i;
    });
    steps[largest] -= Math.sign(steps[largest]);
    size = sizeOf(steps, order);
  }
  if (!(size <= allowed) || !steps.every(Number.isInteger)) {
    throw new OffaxisError("an encoded vector is outside the ball");
  }
  return steps;
}

function sizeOf(steps, order) {
  let size = 0;
  for (const n of steps) size += order === 1 ? Math.abs(n) : n * n;
  return size;
}

/** Range of the uniform integer that flipped() takes as a coin: 2B. */
export const COIN_RANGE = 2 * LENGTH_BOUND;

/** Return L, the length of a clipped vector in steps of the lattice, 0 <= L <= B. */
export function latticeLength(vector, radius) {
  const steps = ontoLattice(vector, radius, 2, LENGTH_BOUND);
  // The square is at most 2**40, so the correctly rounded root never reaches the next integer.
  return Math.floor(Math.sqrt(sizeOf(steps, 2)));
}

/** Return w with probability (B + L)/2B and −w otherwise, by a coin that was drawn before. */
export function flipped(vector, radius, coin) {
  return coin < LENGTH_BOUND + latticeLength(vector, radius) ? vector : vector.map((x) => -x);
}
