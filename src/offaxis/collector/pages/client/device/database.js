/** An IndexedDB database whose transactions write several stores atomically. */

import { InvalidInput } from "../errors.js";

const VERSION = 1;
const STORES = ["answers", "payments", "releases", "keys"];

/** Return a request as a promise; unlike any other, awaiting it keeps the transaction open. */
function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const failed = (error) =>
  new InvalidInput(`the browser cannot store the device's state: ${error?.message ?? error}`);

/** Create the object stores of a new database. */
function createStores(database) {
  database.createObjectStore("answers", { keyPath: "round" });
  database.createObjectStore("payments", { autoIncrement: true });
  database.createObjectStore("releases");
  database.createObjectStore("keys");
}

/** Return the stores of a transaction by name, with every request as a promise. */
function stores(transaction) {
  const bound = (store) => ({
    get: (key) => promised(store.get(key)),
    all: () => promised(store.getAll()),
    put: (value, ...key) => promised(store.put(value, ...key)),
  });
  return Object.fromEntries(STORES.map((name) => [name, bound(transaction.objectStore(name))]));
}

export class Database {
  #database;

  static async open(name) {
    if (!globalThis.indexedDB) throw failed("it has no IndexedDB");
    const opening = indexedDB.open(name, VERSION);
    opening.onupgradeneeded = () => createStores(opening.result);
    const database = new Database();
    try {
      database.#database = await promised(opening);
    } catch (error) {
      throw failed(error);
    }
    database.#database.onversionchange = () => database.close();
    return database;
  }

  /**
   * Run an exclusive write transaction across all tabs: everything in it is written, or nothing.
   *
   * `body` may await promises of the stores only: while it awaits any other, the browser ends the
   * transaction. The data is on the disk when this returns.
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
      transaction.onabort = () => reject(failed(transaction.error ?? "the transaction aborted"));
    });
    let result;
    try {
      result = await body(stores(transaction));
    } catch (error) {
      ended.catch(() => {}); // the error of the body is thrown instead
      try {
        transaction.abort();
      } catch {
        // It had already ended.
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
