/** Asking the collector, and saying in words what went wrong. */

const KEY = "offaxis.token";
const PATIENCE = 20_000;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Something went wrong; `passing` if trying again may help, `wait` for how long not to (seconds). */
export class Trouble extends Error {
  /**
   * @param {string} words
   * @param {{status?: number, passing?: boolean, wait?: number}} [more]
   */
  constructor(words, { status = 0, passing = false, wait = 0 } = {}) {
    super(words);
    Object.assign(this, { status, passing, wait });
  }
}

const WORDS = {
  401: "The collector does not know this token, or it was revoked. Sign in with a valid one.",
  403: "This token's role may not see this.",
  404: "The collector has nothing under this name.",
  429: "This token asked too often; the page waits a little.",
};

function troubleOf(response, detail) {
  const { status } = response;
  const more = { status, wait: Number(response.headers.get("retry-after")) || 0, passing: status === 429 || status >= 500 };
  if (status >= 500) return new Trouble(`The collector has a problem (${status}${detail ? `: ${detail}` : ""}).`, more);
  return new Trouble(WORDS[status] ?? `The collector refused (${status}${detail ? `: ${detail}` : ""}).`, more);
}

async function fetched(path, secret) {
  try {
    return await fetch(new URL(`v1/${path}`, document.baseURI), {
      headers: { Authorization: `Bearer ${secret}` },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE),
    });
  } catch (error) {
    const slow = error.name === "TimeoutError";
    throw new Trouble(slow ? "The collector does not answer." : "The collector cannot be reached.", { passing: true });
  }
}

/** Return the JSON of an answer; a Trouble otherwise. */
export async function ask(path, secret = token.get()) {
  const response = await fetched(path, secret);
  try {
    const found = await response.json();
    if (response.ok) return found;
    throw troubleOf(response, found.detail);
  } catch (error) {
    if (error instanceof Trouble) throw error;
    // Not JSON: something else than the collector has answered, or the answer broke off.
    if (!response.ok) throw troubleOf(response, "");
    throw new Trouble("The collector's answer could not be read.", { passing: true });
  }
}

export const askRound = (name) => ask(`rounds/${encodeURIComponent(name)}`);
export const askOfRound = (name, what) => ask(`rounds/${encodeURIComponent(name)}/${what}`);
export const askOfRelease = (hash, what) => ask(`releases/${encodeURIComponent(hash)}/${what}`);
