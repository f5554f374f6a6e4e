/**
 * What a release of pairs asks people besides their vector, and the rows that its encoder takes.
 *
 * A row is the vector, then one number per answer: the index of a class, a number clipped to its range,
 * or 1e30 for a missing answer. The guarantee covers all of it. Messages never contain an answer.
 */

import { InvalidInput, shown } from "./errors.js";
import { canonicalJson } from "./strict_json.js";

/** In a row, the number that stands for a missing answer. */
export const NO_ANSWER = 1e30;

const MISSING_FROM = 1e29;
const LARGEST_RANGE = 1e20;
const MOST_CLASSES = 512;
const MOST_VALUES = 1 << 16;
const LONGEST_NAMES = 1 << 19; // characters of JSON

/** Whether a number of a row stands for a missing answer to a question for a number. */
export const isMissing = (entry) => !(Math.abs(entry) < MISSING_FROM);

/** Return the index of an answer, given by its index or its name, or throw. */
export function answerIndex(names, answer) {
  const label = (name, i) => /^-?\d+(\.0*)?$/.test(name) && name !== `${i}`;
  if (Number.isInteger(answer) && names.some(label)) {
    throw new InvalidInput("the answers are named by integers: pass a name as text");
  }
  const index = typeof answer === "string" ? names.indexOf(answer) : answer;
  if (!Number.isInteger(index) || index < 0 || index >= names.length) {
    throw new InvalidInput(
      `an answer is a whole number from 0 to ${names.length - 1} or one of the names`,
    );
  }
  return index;
}

// ---- What is asked

const isRange = (low, high) => -LARGEST_RANGE <= low && low < high && high <= LARGEST_RANGE;

/** Whether a row of the tensor `asked` of an encoder, {classes, low, high, optional}, is valid. */
export function isAsked({ classes, low, high, optional }) {
  const whole = Number.isInteger(classes) && 0 <= classes && classes <= MOST_CLASSES;
  if (!whole || (optional !== 0 && optional !== 1)) return false;
  if (classes === 0) return isRange(low, high);
  return low === 0 && high === 0 && (classes > 1 || optional === 0);
}

/** Whether a row of an encoder of answers alone is valid; `classes` counts bins if it has a range. */
export function isCounted({ classes, low, high, optional }) {
  const whole = Number.isInteger(classes) && 2 <= classes && classes <= MOST_VALUES;
  const known = optional === 0 || optional === 1;
  return whole && known && ((low === 0 && high === 0) || isRange(low, high));
}

/**
 * Check what the manifest asks, and that the encoder reads just this; return a frozen list of
 * {kind: "classes", name, names, optional} and {kind: "number", name, low, high, bins, optional},
 * without bins if the number is not counted in any.
 */
export function readAsked(part, encoder) {
  const asked = (part ?? []).map(readPart);
  const known = new Set(asked.map(({ name }) => name));
  if (known.size !== asked.length) throw new InvalidInput("several answers need different names");
  const questions = encoder.questions ?? [];
  if (asked.length && !encoder.questions) {
    throw new InvalidInput("only a release of pairs asks people for answers");
  }
  const same = ({ names = [], low = 0, high = 0, bins = 0, optional }, i) =>
    names.length + bins === questions[i].classes &&
    low === questions[i].low &&
    high === questions[i].high &&
    Number(optional) === questions[i].optional;
  if (asked.length !== questions.length || !asked.every(same)) {
    throw new InvalidInput("the encoder reads other answers than the release asks for");
  }
  return Object.freeze(asked);
}

function readPart(part) {
  const [kind, name, optional] = ["kind", "name", "optional"].map((field) => part.get(field));
  if (kind === "number" || kind === "bins") {
    const [low, high] = [part.get("low"), part.get("high")];
    if (!isRange(low, high)) {
      throw new InvalidInput(`a number needs a range low < high, got ${low} and ${high}`);
    }
    const counted = kind === "bins" ? { bins: Number(part.get("bins")) } : {};
    return Object.freeze({ kind: "number", name, low, high, ...counted, optional });
  }
  if (kind === "many-classes") return manyClasses(part, name, optional);
  const names = Object.freeze([...part.get("names")]);
  if (names.length < 2 || names.length > MOST_CLASSES || new Set(names).size !== names.length) {
    throw new InvalidInput(`${shown(name)} needs 2 to ${MOST_CLASSES} classes with different names`);
  }
  return Object.freeze({ kind, name, names, optional });
}

/** Return classes whose names are one text, with a line for each; they are 0, 1, … if it is empty. */
function manyClasses(part, name, optional) {
  const [size, text] = [Number(part.get("size")), part.get("names")];
  const numbers = Array.from({ length: size }, (_, i) => `${i}`);
  const names = text === "" ? numbers : text.split("\n");
  const fits = (one) => one.length >= 1 && Array.from(one).length <= 200 && !one.includes("\0");
  const same = text !== "" && numbers.join("\n") === text;
  const long = canonicalJson(text).length > LONGEST_NAMES;
  if (long || names.length !== size || new Set(names).size !== size || same || !names.every(fits)) {
    throw new InvalidInput(`${shown(name)} needs ${size} different names of classes`);
  }
  return Object.freeze({ kind: "classes", name, names: Object.freeze(names), optional });
}

// ---- Rows

/**
 * Return the numbers of a row that stand for a person's answers, or throw.
 *
 * `answers` is one answer, or an object with an answer for every name. An answer is a class by its
 * name or index, a number, or null where there is none and the release allows it.
 */
export function answerCodes(asked, answers) {
  if (!asked.length) {
    if (answers === undefined || answers === null) return [];
    throw new InvalidInput("this release asks for no answer: leave out the answers");
  }
  if (answers === undefined) {
    throw new InvalidInput("this release asks for answers: pass them as well as the vector");
  }
  const byName = typeof answers === "object" && answers !== null;
  if (asked.length === 1 && !byName) return [codeOf(asked[0], answers)];
  const names = asked.map(({ name }) => name);
  const given = byName ? Object.keys(answers) : [];
  if (given.length !== names.length || !names.every((name) => given.includes(name))) {
    const listed = names.map((name) => shown(name)).join(", ");
    throw new InvalidInput(`answers must be an object with exactly the names ${listed}`);
  }
  return asked.map((question) => codeOf(question, answers[question.name]));
}

function codeOf({ kind, name, names, low, high, optional }, answer) {
  if (answer === null || answer === undefined) {
    // Undefined is more likely a mistake of the page than an answer that a person does not have.
    if (optional && answer === null) return NO_ANSWER;
    throw new InvalidInput(
      optional
        ? `the answer ${shown(name)} is undefined: pass null where a person has none`
        : `the answer ${shown(name)} is missing: this release needs one from everybody`,
    );
  }
  if (kind === "classes") return answerIndex(names, answer);
  if (!Number.isFinite(answer)) {
    throw new InvalidInput(`the answer ${shown(name)} must be a finite number`);
  }
  return Math.min(Math.max(answer, low), high);
}
