/** Periodic refresh: every two seconds, paused while hidden, and at growing intervals on errors. */

const INTERVAL = 2_000;
const LONGEST_INTERVAL = 30_000;

/**
 * @param {{refresh: () => Promise<void>, succeeded: () => void,
 *   failed: (error: Error, wait: number) => boolean}} callbacks
 *   `failed` gets the error and the time until the next attempt (ms), and returns whether to retry.
 */
export class Live {
  #callbacks;
  #timer = 0;
  #failures = 0;
  #running = false;
  #again = false;
  #stopped = false;
  #wake = () => this.now();

  constructor(callbacks) {
    this.#callbacks = callbacks;
    document.addEventListener("visibilitychange", this.#wake);
    addEventListener("online", this.#wake);
  }

  /** Refresh now, unless hidden or stopped; if a refresh is running, once more after it. */
  async now() {
    clearTimeout(this.#timer);
    this.#again = this.#running;
    if (this.#stopped || this.#running || document.hidden) return;
    this.#running = true;
    const wait = await this.#refresh();
    this.#running = false;
    if (wait === null || this.#stopped) return;
    this.#timer = setTimeout(() => this.now(), this.#again ? 0 : wait);
  }

  async #refresh() {
    try {
      await this.#callbacks.refresh();
      if (this.#stopped) return null;
      this.#failures = 0;
      this.#callbacks.succeeded();
      return INTERVAL;
    } catch (error) {
      if (this.#stopped) return null;
      const slower = Math.min(INTERVAL * 2 ** this.#failures, LONGEST_INTERVAL);
      const wait = Math.max(slower, 1000 * (error.wait ?? 0));
      this.#failures += 1;
      return this.#callbacks.failed(error, wait) ? wait : null;
    }
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#wake);
    removeEventListener("online", this.#wake);
  }
}
