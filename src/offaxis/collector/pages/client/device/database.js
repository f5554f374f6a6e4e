/** One database of the browser, in which several things are written together or not at all. */

import { InvalidInput } from "../errors.js";

const VERSION = 1;
const STORES = ["answers", "payments", "releases", "keys"];

/** Return a promise of a request; it keeps the transaction open, as no other promise does. */
function asked(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const failed = (error) =>
  new InvalidInput(`the browser cannot keep the device's state: ${error?.message ?? error}`);

/** Make what a new database holds. */
function prepare(database) {
  database.createObjectStore("answers", { keyPath: "round" });
  database.createObjectStore("payments", { autoIncrement: true });
  database.createObjectStore("releases");
  database.createObjectStore("keys");
}

/** A transaction under way: the stores by their names, each request as a promise. */
function stores(transaction) {
  const bound = (store) => ({
    get: (key) => asked(store.get(key)),
    all: () => asked(store.getAll()),
    put: (value, ...key) => asked(store.put(value, ...key)),
  });
  return Object.fromEntries(STORES.map((name) => [name, bound(transaction.objectStore(name))]));
}

export class Database {
  #database;

  static async open(name) {
    if (!globalThis.indexedDB) throw failed("it has no IndexedDB");
    const opening = indexedDB.open(name, VERSION);
    opening.onupgradeneeded = () => prepare(opening.result);
    const database = new Database();
    try {
      database.#database = await asked(opening);
    } catch (error) {
      throw failed(error);
    }
    database.#database.onversionchange = () => database.close();
    return database;
  }

  /**
   * Hold the only right to write, in all tabs; everything inside is written, or nothing.
   *
   * `body` may wait for the stores' own promises only: while any other is waited for, the browser
   * ends the transaction. It is on the disk when this returns.
   */
  async alone(body) {
    let transaction;
    try {
      transaction = this.#database.transaction(STORES, "readwrite", { durability: "strict" });
    } catch (error) {
      throw failed(error);
    }
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(failed(transaction.error ?? "it was broken off"));
    });
    let result;
    try {
      result = await body(stores(transaction));
    } catch (error) {
      ended.catch(() => {}); // what the body threw is told instead
      try {
        transaction.abort();
      } catch {
        // It had ended by itself.
      }
      throw error instanceof DOMException ? failed(error) : error;
    }
    await ended;
    return result;
  }

  close() {
    this.#database.close();
  }
}
