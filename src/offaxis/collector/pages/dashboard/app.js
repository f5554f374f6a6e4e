/**
 * The dashboard: signing in, choosing the page, and the state of the connection.
 * @typedef {{title: string, parts: HTMLElement[], refresh: () => Promise<void>}} View
 */

import { element } from "../shared/dom.js";
import { getJson, token } from "./api.js";
import { askPage } from "./ask.js";
import { learningPage } from "./learning.js";
import { Live } from "./live.js";
import { releasePage, releasesPage } from "./release.js";
import { roundPage } from "./round.js";
import { roundsPage } from "./rounds.js";

const byId = (id) => document.getElementById(id);
const PAGES = [
  [/^#\/rounds\/([a-z0-9-]{1,63})$/, roundPage, "#/"],
  [/^#\/releases\/([0-9a-f]{64})$/, releasePage, "#/releases"],
  [/^#\/releases$/, releasesPage, "#/releases"],
  [/^#\/ask$/, askPage, "#/ask"],
  [/^#\/learning$/, learningPage, "#/learning"],
  [/^(?:#\/?)?$/, roundsPage, "#/"],
];
const ANNOUNCE_INTERVAL = 10_000;

let role = null;
let live = null;
let lastAnnounced = 0;
let lastUpdate = null;

/** Announce a text to screen readers, but not so often that nothing else can be heard. */
function announce(text) {
  if (Date.now() - lastAnnounced < ANNOUNCE_INTERVAL || byId("status").textContent === text) return;
  lastAnnounced = Date.now();
  byId("status").textContent = text;
}

function showError(message) {
  const line = byId("error");
  line.hidden = !message;
  if (line.textContent !== message) line.textContent = message;
}

function showConnection(state) {
  byId("link").dataset.state = state;
  byId("link").textContent = state;
}

function succeeded() {
  lastUpdate = new Date();
  showError("");
  showConnection("live");
}

function failed(error, wait) {
  if (error.status === 401) {
    signOut(error.message);
    return false;
  }
  if (!error.temporary) {
    showConnection("live");
    showError(error.message);
    if (error.status === undefined) throw error;
    return false;
  }
  showConnection(error.status === 429 ? "live" : "offline");
  const age = lastUpdate ? ` Data as of ${lastUpdate.toLocaleTimeString("en-GB")}.` : "";
  showError(`${error.message} Retrying in ${Math.ceil(wait / 1000)} s.${age}`);
  return true;
}

function show() {
  if (role === null) return;
  live?.stop();
  lastAnnounced = 0;
  const route = PAGES.find(([pattern]) => pattern.test(location.hash));
  const [pattern, page, section] = route ?? [/^/, notFound, null];
  const [, name] = pattern.exec(location.hash);
  const view = page({ role, announce, again: () => live?.now() }, name);
  document.title = `${view.title} — offaxis`;
  const heading = element("h1", { tabindex: "-1" }, view.title);
  byId("main").replaceChildren(heading, ...view.parts);
  for (const link of byId("pages").children) {
    if (link.getAttribute("href") === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  heading.focus({ preventScroll: true });
  showError("");
  lastUpdate = null;
  live = new Live({ refresh: view.refresh, succeeded, failed });
  live.now();
}

const notFound = () => ({
  title: "Page not found",
  parts: [element("p", {}, element("a", { href: "#/" }, "Show all rounds"))],
  refresh: async () => {},
});

function signOut(message = "") {
  live?.stop();
  live = null;
  role = null;
  token.forget();
  showSignIn();
  showError(message);
}

function showSignIn() {
  byId("pages").hidden = byId("who").hidden = true;
  document.title = "Sign in — offaxis";
  const input = element("input", {
    id: "token", type: "password", required: true,
    autocomplete: "current-password", spellcheck: "false",
  });
  const button = element("button", { class: "primary" }, "Sign in");
  const form = element("form", {
    class: "card signin",
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      try {
        await signIn(input.value.trim());
      } catch (error) {
        showError(error.message);
        input.focus();
      }
      button.disabled = false;
    },
  },
  element("h1", {}, "Sign in"),
  element("p", {}, "Enter a token of this collector. It is kept in this tab until you close it."),
  element("label", { for: "token" }, "Token"), input, button,
  element("p", { class: "small" }, "An admin creates tokens, for example with ",
    element("code", {}, "offaxis collector token create anna --role analyst"), "."));
  byId("main").replaceChildren(form);
  input.focus();
}

/** Verify a token at the collector and show the pages. */
async function signIn(secret) {
  // No token has characters that a header cannot carry.
  const owner = await getJson("token", /^[\x21-\x7e]+$/.test(secret) ? secret : "none");
  token.set(secret);
  role = owner.role;
  byId("role").textContent = `${owner.name} (${role})`;
  byId("pages").hidden = byId("who").hidden = false;
  show();
}

/** Sign in with the token stored in this tab, as soon as the collector responds. */
function resume() {
  byId("main").replaceChildren(element("p", {}, "Loading…"));
  live = new Live({ refresh: () => signIn(token.get()), succeeded, failed });
  live.now();
}

byId("leave").addEventListener("click", () => signOut());
byId("skip").addEventListener("click", (event) => {
  // The hash identifies the page, so it must not change.
  event.preventDefault();
  byId("main").focus();
});
addEventListener("hashchange", show);
if (token.get() === null) showSignIn();
else resume();
