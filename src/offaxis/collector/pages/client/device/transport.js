/**
 * HTTP requests to one collector whose responses are not trusted.
 *
 * Contract: every exchange ends within its time limit, however slowly the other side sends, and
 * reads at most the allowed number of bytes. Plain HTTP is allowed to this machine only. No
 * redirect is followed, no cookie is sent, and no cache is used.
 */

import { InvalidInput, Unreachable, shown } from "../errors.js";

/** Largest response other than a release or a list, in bytes. */
export const SMALL = 1 << 20;

const LOCAL = ["localhost", "127.0.0.1", "[::1]"];

/** An untrusted response: status, headers and body. */
class CollectorResponse {
  constructor(status, headers, body) {
    Object.assign(this, { status, headers, body });
  }

  /** Milliseconds to wait, if the response states it in either form of RFC 9110. */
  get retryAfter() {
    const text = (this.headers.get("retry-after") ?? "").trim();
    if (/^\d+$/.test(text)) return 1000 * Number(text.slice(0, 9));
    const time = Date.parse(text);
    return Number.isNaN(time) ? null : Math.max(0, time - Date.now());
  }

  /** The last part of a problem's type (RFC 9457), or "". */
  get problemType() {
    return this.#problem("type").split(/[/:#]/).at(-1);
  }

  /** Status and problem as one short printable line. */
  get message() {
    const problem = this.#problem("detail") || this.#problem("title");
    return problem ? `${this.status}, ${shown(problem)}` : `${this.status}`;
  }

  /** The body as a JSON object. */
  get json() {
    try {
      const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(this.body));
      if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
    } catch {
      // Thrown below.
    }
    throw new Unreachable("the collector's response is not a JSON object");
  }

  #problem(key) {
    if (!(this.headers.get("content-type") ?? "").includes("problem+json")) return "";
    try {
      const value = this.json[key];
      return typeof value === "string" ? value : "";
    } catch {
      return "";
    }
  }
}

/** Sends requests to one collector. */
export class Transport {
  #base;
  #token;
  #patience;

  constructor(url, { token, patience }) {
    let parts;
    try {
      parts = new URL(url);
    } catch {
      throw new InvalidInput(`${shown(url)} is not a valid address`);
    }
    const plain = parts.protocol === "http:" && LOCAL.includes(parts.hostname);
    const bare = !(parts.username || parts.password || parts.search || parts.hash);
    if (!(plain || parts.protocol === "https:") || !bare) {
      throw new InvalidInput(
        "a collector's address is https://host[:port][/path], or http for this machine only, " +
          `got ${shown(url)}`,
      );
    }
    if (token !== undefined && !(typeof token === "string" && /^[!-~]{1,500}$/.test(token))) {
      throw new InvalidInput("a token is up to 500 printable ASCII characters without spaces");
    }
    this.#base = parts.origin + parts.pathname.replace(/\/+$/, "");
    this.#token = token;
    this.#patience = patience;
  }

  /** Milliseconds after which an exchange has certainly ended. */
  get lease() {
    return 2000 * this.#patience;
  }

  /** Send one request and return the response, whatever its status, except redirects. */
  async request(method, path, { body, headers = {}, largest = SMALL, patience = 1 } = {}) {
    const seconds = this.#patience * patience;
    const token = this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` };
    try {
      const response = await fetch(this.#base + path, {
        ...{ method, body, headers: { ...token, ...headers } },
        ...{ redirect: "error", credentials: "omit", cache: "no-store" },
        ...{ referrerPolicy: "no-referrer", signal: AbortSignal.timeout(1000 * seconds) },
      });
      const { status, headers: received } = response;
      return new CollectorResponse(status, received, await read(response, largest));
    } catch (error) {
      if (error instanceof Unreachable) throw error;
      if (error?.name === "TimeoutError") {
        throw new Unreachable(`the collector took over ${seconds} s to respond`);
      }
      throw new Unreachable(`the request to the collector failed: ${shown(error?.message)}`);
    }
  }
}

/** Read a body in chunks, up to the allowed size. */
async function read(response, largest) {
  if (!response.body) return new Uint8Array(0);
  const chunks = [];
  let size = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.length;
    if (size > largest) {
      await reader.cancel();
      throw new Unreachable(`the collector's response is larger than ${largest} bytes`);
    }
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}
