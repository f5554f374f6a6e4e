/** An IndexedDB database whose transactions write several stores atomically. */

import { InvalidInput } from "../errors.js";

const VERSION = 3; // an older client would take a report without bytes for none, and answer again
const STORES = ["answers", "payments", "releases", "keys", "studies"];

/** Return a request as a promise; unlike any other, awaiting it keeps the transaction open. */
function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const failed = (error) =>
  new InvalidInput(`the browser cannot store the device's state: ${error?.message ?? error}`);

/** Create the object stores of a new database, or those that an older version lacks. */
function createStores(database, version) {
  if (version < 1) {
    database.createObjectStore("answers", { keyPath: "round" });
    database.createObjectStore("payments", { autoIncrement: true });
    database.createObjectStore("releases");
    database.createObjectStore("keys");
  }
  // Names of studies to {release, state, payment}: what a person reports in them under one promise.
  if (version < 2) database.createObjectStore("studies");
}

/** Return the stores of a transaction by name, with every request as a promise. */
function stores(transaction) {
  const bound = (store) => ({
    get: (key) => promised(store.get(key)),
    all: () => promised(store.getAll()),
    keys: () => promised(store.getAllKeys()),
    put: (value, ...key) => promised(store.put(value, ...key)),
  });
  return Object.fromEntries(STORES.map((name) => [name, bound(transaction.objectStore(name))]));
}

export class Database {
  #database;

  /**
   * Open a database, or create it.
   *
   * `upgrade(stores)` brings what an older version wrote up to date, in the transaction that creates
   * the stores that it lacked: if it fails, the database stays as it was.
   */
  static async open(name, upgrade) {
    if (!globalThis.indexedDB) throw failed("it has no IndexedDB");
    const opening = indexedDB.open(name, VERSION);
    opening.onupgradeneeded = ({ oldVersion }) => {
      createStores(opening.result, oldVersion);
      if (!oldVersion) return;
      const { transaction } = opening;
      upgrade(stores(transaction)).catch(() => transaction.abort());
    };
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
