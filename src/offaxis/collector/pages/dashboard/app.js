/**
 * The dashboard: who is signed in, which page is shown, and whether the collector answers.
 * @typedef {{title: string, parts: HTMLElement[], refresh: () => Promise<void>}} View
 */

import { element } from "../shared/dom.js";
import { ask, token } from "./api.js";
import { Live } from "./live.js";
import { releasePage, releasesPage } from "./release.js";
import { roundPage } from "./round.js";
import { roundsPage } from "./rounds.js";

const at = (id) => document.getElementById(id);
const PAGES = [
  [/^#\/rounds\/([a-z0-9-]{1,63})$/, roundPage, "#/"],
  [/^#\/releases\/([0-9a-f]{64})$/, releasePage, "#/releases"],
  [/^#\/releases$/, releasesPage, "#/releases"],
  [/^(?:#\/?)?$/, roundsPage, "#/"],
];
const QUIET = 10_000;

let role = null;
let live = null;
let lastSaid = 0;
let seen = null;

/** Tell those who listen rather than look; not so often that nothing else can be heard. */
function say(words) {
  if (Date.now() - lastSaid < QUIET || at("said").textContent === words) return;
  lastSaid = Date.now();
  at("said").textContent = words;
}

function trouble(words) {
  const line = at("trouble");
  line.hidden = !words;
  if (line.textContent !== words) line.textContent = words;
}

function linked(state) {
  at("link").dataset.state = state;
  at("link").textContent = state;
}

function well() {
  seen = new Date();
  trouble("");
  linked("live");
}

function ill(error, wait) {
  if (error.status === 401) {
    signOut(error.message);
    return false;
  }
  if (!error.passing) {
    linked("live");
    trouble(error.message);
    if (error.status === undefined) throw error;
    return false;
  }
  linked(error.status === 429 ? "live" : "offline");
  const old = seen ? ` What you see is of ${seen.toLocaleTimeString("en-GB")}.` : "";
  trouble(`${error.message} The page tries again in ${Math.ceil(wait / 1000)} s.${old}`);
  return true;
}

function show() {
  if (role === null) return;
  live?.stop();
  lastSaid = 0;
  const found = PAGES.find(([pattern]) => pattern.test(location.hash));
  const [pattern, page, under] = found ?? [/^/, nowhere, null];
  const [, name] = pattern.exec(location.hash);
  const view = page({ role, say }, name);
  document.title = `${view.title} — offaxis`;
  const heading = element("h1", { tabindex: "-1" }, view.title);
  at("main").replaceChildren(heading, ...view.parts);
  for (const link of at("pages").children) {
    if (link.getAttribute("href") === under) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  heading.focus({ preventScroll: true });
  trouble("");
  seen = null;
  live = new Live({ refresh: view.refresh, well, ill });
  live.now();
}

const nowhere = () => ({
  title: "Nothing here",
  parts: [element("p", {}, "There is no such page. ", element("a", { href: "#/" }, "See the rounds"), ".")],
  refresh: async () => {},
});

function signOut(words = "") {
  live?.stop();
  live = null;
  role = null;
  token.forget();
  askForToken();
  trouble(words);
}

function askForToken() {
  at("pages").hidden = at("who").hidden = true;
  document.title = "Sign in — offaxis";
  const input = element("input", { id: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const button = element("button", { class: "primary" }, "Sign in");
  const form = element("form", {
    class: "card signin",
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      try {
        await enter(input.value.trim());
      } catch (error) {
        trouble(error.message);
        input.focus();
      }
      button.disabled = false;
    },
  },
  element("h1", {}, "Sign in"),
  element("p", {}, "With a token of this collector. It stays in this tab and is forgotten with it."),
  element("label", { for: "token" }, "Token"), input, button,
  element("p", { class: "small" }, "An admin makes one with ", element("code", {}, "offaxis collector token create anna --role analyst"), "."));
  at("main").replaceChildren(form);
  input.focus();
}

/** Ask whose token this is; who is known sees the pages. */
async function enter(secret) {
  // Only these characters can be in a header, and no token has others.
  const found = await ask("token", /^[\x21-\x7e]+$/.test(secret) ? secret : "none");
  token.set(secret);
  role = found.role;
  at("role").textContent = `${found.name} (${role})`;
  at("pages").hidden = at("who").hidden = false;
  show();
}

/** Enter with the token that this tab remembers, as soon as the collector answers. */
function comeBack() {
  at("main").replaceChildren(element("p", {}, "Asking the collector…"));
  live = new Live({ refresh: () => enter(token.get()), well, ill });
  live.now();
}

at("leave").addEventListener("click", () => signOut());
at("skip").addEventListener("click", (event) => {
  // The address names the page, so it must not change.
  event.preventDefault();
  at("main").focus();
});
addEventListener("hashchange", show);
if (token.get() === null) askForToken();
else comeBack();
