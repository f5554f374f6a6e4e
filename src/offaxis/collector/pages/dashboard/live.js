/** Asking again and again: every two seconds, not while hidden, and ever slower while it fails. */

const EVERY = 2_000;
const SLOWEST = 30_000;

/**
 * @param {{refresh: () => Promise<void>, well: () => void, ill: (error: Error, wait: number) => boolean}} what
 *   `ill` is told of an error and how long is waited (ms), and says whether to go on.
 */
export class Live {
  #what;
  #timer = 0;
  #failures = 0;
  #running = false;
  #again = false;
  #stopped = false;
  #wake = () => this.now();

  constructor(what) {
    this.#what = what;
    document.addEventListener("visibilitychange", this.#wake);
    addEventListener("online", this.#wake);
  }

  /** Ask at once, unless hidden or stopped; if it is being asked already, once more after that. */
  async now() {
    clearTimeout(this.#timer);
    this.#again = this.#running;
    if (this.#stopped || this.#running || document.hidden) return;
    this.#running = true;
    const wait = await this.#once();
    this.#running = false;
    if (wait === null || this.#stopped) return;
    this.#timer = setTimeout(() => this.now(), this.#again ? 0 : wait);
  }

  async #once() {
    try {
      await this.#what.refresh();
      if (this.#stopped) return null;
      this.#failures = 0;
      this.#what.well();
      return EVERY;
    } catch (error) {
      if (this.#stopped) return null;
      const slower = Math.min(EVERY * 2 ** this.#failures, SLOWEST);
      const wait = Math.max(slower, 1000 * (error.wait ?? 0));
      this.#failures += 1;
      return this.#what.ill(error, wait) ? wait : null;
    }
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#wake);
    removeEventListener("online", this.#wake);
  }
}
