/** Requests to the collector, with errors as messages for people. */

const KEY = "offaxis.token";
const TIMEOUT = 20_000;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/**
 * A failed request; `temporary` if a retry may help, after `wait` seconds at the earliest. `kind`
 * is the type of the problem, if the collector named one.
 */
export class RequestError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, temporary?: boolean, wait?: number, kind?: string}} [details]
   */
  constructor(message, { status = 0, temporary = false, wait = 0, kind = "" } = {}) {
    super(message);
    Object.assign(this, { status, temporary, wait, kind });
  }
}

const MESSAGES = {
  401: "The collector does not know this token, or it was revoked. Sign in with a valid token.",
  403: "Insufficient role: this token has no access to this page.",
  404: "Not found on this collector.",
  429: "Too many requests with this token.",
};

function errorOf(response, detail, kind = "") {
  const { status } = response;
  const temporary = status === 429 || status >= 500;
  const details = { status, temporary, kind, wait: Number(response.headers.get("retry-after")) || 0 };
  const reason = `${status}${detail ? `: ${detail}` : ""}`;
  if (status >= 500) {
    return new RequestError(`The collector reports an error (${reason}).`, details);
  }
  const message = MESSAGES[status] ?? `The collector rejected the request (${reason}).`;
  return new RequestError(message, details);
}

async function send(path, secret) {
  try {
    return await fetch(new URL(`v1/${path}`, document.baseURI), {
      headers: { Authorization: `Bearer ${secret}` },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT),
    });
  } catch (error) {
    const timedOut = error.name === "TimeoutError";
    const message = timedOut
      ? "The collector does not respond."
      : "The collector cannot be reached.";
    throw new RequestError(message, { temporary: true });
  }
}

/** Return the JSON of a response, or throw a RequestError. */
export async function getJson(path, secret = token.get()) {
  const response = await send(path, secret);
  try {
    const value = await response.json();
    if (response.ok) return value;
    throw errorOf(response, value.detail, value.type);
  } catch (error) {
    if (error instanceof RequestError) throw error;
    // Not JSON: the response is incomplete, or not from the collector.
    if (!response.ok) throw errorOf(response, "");
    throw new RequestError("The collector's response could not be read.", { temporary: true });
  }
}

/** Return the body of a response as a Blob, or throw a RequestError. */
export async function getFile(path) {
  const response = await send(path, token.get());
  if (response.ok) return response.blob();
  throw errorOf(response, (await response.json().catch(() => ({}))).detail);
}

export const getRound = (name) => getJson(`rounds/${encodeURIComponent(name)}`);
export const getOfRound = (name, part) => getJson(`rounds/${encodeURIComponent(name)}/${part}`);
export const getOfRelease = (hash, part) => getJson(`releases/${encodeURIComponent(hash)}/${part}`);
