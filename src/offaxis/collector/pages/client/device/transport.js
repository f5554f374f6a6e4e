/**
 * HTTP to one collector, by a device that trusts nothing it answers.
 *
 * Contract: every exchange ends within its time, however slowly the other side talks, and reads no
 * more than it was allowed to. Without TLS only this machine is talked to. No redirect is followed,
 * no cookie sent, nothing taken from a cache.
 */

import { InvalidInput, Unreachable, shown } from "../errors.js";

/** Bytes of an answer that is no release. */
export const SMALL = 1 << 20;

const LOCAL = ["localhost", "127.0.0.1", "[::1]"];

/** What came back: status, headers and body, all untrusted. */
class Answer {
  constructor(status, headers, body) {
    Object.assign(this, { status, headers, body });
  }

  /** Milliseconds to wait, if the answer says so in either form of RFC 9110. */
  get retryAfter() {
    const text = (this.headers.get("retry-after") ?? "").trim();
    if (/^\d+$/.test(text)) return 1000 * Number(text.slice(0, 9));
    const time = Date.parse(text);
    return Number.isNaN(time) ? null : Math.max(0, time - Date.now());
  }

  /** The last part of a problem's type (RFC 9457), or nothing. */
  get problemType() {
    return this.#problem("type").split(/[/:#]/).at(-1);
  }

  /** What may be shown of an answer that was not hoped for: one short harmless line. */
  get words() {
    const said = this.#problem("detail") || this.#problem("title");
    return said ? `${this.status}, ${shown(said)}` : `${this.status}`;
  }

  /** The body as the object that a collector answers. */
  get json() {
    try {
      const found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(this.body));
      if (typeof found === "object" && found !== null && !Array.isArray(found)) return found;
    } catch {
      // Told below.
    }
    throw new Unreachable("the collector answers no object in JSON");
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

/** Asks one collector. */
export class Transport {
  #base;
  #token;
  #patience;

  constructor(url, { token, patience }) {
    let parts;
    try {
      parts = new URL(url);
    } catch {
      throw new InvalidInput(`${shown(url)} is no address of a collector`);
    }
    const plain = parts.protocol === "http:" && LOCAL.includes(parts.hostname);
    const bare = !(parts.username || parts.password || parts.search || parts.hash);
    if (!(plain || parts.protocol === "https:") || !bare) {
      throw new InvalidInput(
        "a collector's address is https://host[:port][/path], or http for this machine itself, " +
          `got ${shown(url)}`,
      );
    }
    if (token !== undefined && !(typeof token === "string" && /^[!-~]{1,500}$/.test(token))) {
      throw new InvalidInput("a token is up to 500 printable ASCII characters without blanks");
    }
    this.#base = parts.origin + parts.pathname.replace(/\/+$/, "");
    this.#token = token;
    this.#patience = patience;
  }

  /** Milliseconds after which an exchange has ended for sure. */
  get lease() {
    return 2000 * this.#patience;
  }

  /** Send one request and read the answer, whatever its status, except redirects. */
  async ask(method, path, { body, headers = {}, largest = SMALL, patience = 1 } = {}) {
    const seconds = this.#patience * patience;
    const sent = this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` };
    try {
      const answer = await fetch(this.#base + path, {
        ...{ method, body, headers: { ...sent, ...headers } },
        ...{ redirect: "error", credentials: "omit", cache: "no-store" },
        ...{ referrerPolicy: "no-referrer", signal: AbortSignal.timeout(1000 * seconds) },
      });
      return new Answer(answer.status, answer.headers, await read(answer, largest));
    } catch (error) {
      if (error instanceof Unreachable) throw error;
      if (error?.name === "TimeoutError") {
        throw new Unreachable(`the collector took over ${seconds} s to answer`);
      }
      throw new Unreachable(`the collector could not be asked: ${shown(error?.message)}`);
    }
  }
}

/** Read a body piece by piece, up to the size allowed. */
async function read(answer, largest) {
  if (!answer.body) return new Uint8Array(0);
  const pieces = [];
  let size = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.length;
    if (size > largest) {
      await reader.cancel();
      throw new Unreachable(`the collector's answer is larger than ${largest} bytes`);
    }
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}
