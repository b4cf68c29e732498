// Sign-in, and which page is shown.

import { Client } from "./client.js";
import { bucketsPage, bucketPage, objectPage, uploadsPage } from "./objects.js";
import { settingsPage } from "./settings.js";
import { userPage, usersPage } from "./people.js";
import { chooseTheme } from "./theme.js";
import { usagePage } from "./usage.js";
import { button, doing, fill, h } from "./ui.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let client = null;
let isAdmin = false;

const decode = decodeURIComponent;
const PAGES = [
  [/^$/, () => bucketsPage(client)],
  [/^b\/([^/]+)\/?(.*)$/, (bucket, prefix) => bucketPage(client, decode(bucket), decode(prefix))],
  [/^o\/([^/]+)\/(.+)$/, (bucket, key) => objectPage(client, decode(bucket), decode(key))],
  [/^settings\/([^/]+)$/, (bucket) => settingsPage(client, decode(bucket))],
  [/^uploads\/([^/]+)$/, (bucket) => uploadsPage(client, decode(bucket))],
  [/^usage$/, () => usagePage(client)],
  [/^users$/, () => usersPage(client)],
  [/^users\/(.+)$/, (id) => userPage(client, decode(id))],
];

async function show() {
  if (!client) return signIn();
  const place = location.hash.replace(/^#\/?/, "");
  const links = [["", "Buckets"], ["usage", "Usage"], ...(isAdmin ? [["users", "Users"]] : [])];
  nav.hidden = false;
  fill(nav, links.map(([to, label]) => {
    const isHere = to === "" ? !/^(usage|users)/.test(place) : place.startsWith(to);
    return h("a", { href: `#/${to}`, "aria-current": isHere ? "page" : null }, label);
  }));
  const found = PAGES.map(([pattern, page]) => [place.match(pattern), page]).find(([match]) => match);
  if (!found) { fill(main, h("p", {}, "There is no such page.")); return; }
  main.setAttribute("aria-busy", "true");
  try {
    const content = await found[1](...found[0].slice(1));
    fill(main, content);
    document.title = `${main.querySelector("h1").textContent} · Nacre objects`;
    main.focus({ preventScroll: true });
  } catch (error) {
    fill(main, h("h1", {}, "This page cannot be shown"), h("p", {}, error.message), button("Try again", show));
  } finally {
    main.removeAttribute("aria-busy");
  }
}

function signIn() {
  nav.hidden = true;
  fill(document.getElementById("user"));
  document.title = "Sign in · Nacre objects";
  const field = (name, label, kind, value) => h("p", { class: "field" }, h("label", { for: name }, label),
    h("input", { id: name, name, type: kind, value, autocomplete: kind === "password" ? "current-password" : "username" }));
  const form = h("form", { class: "sign-in" }, h("h1", {}, "Sign in"),
    field("access", "Access key", "text"), field("secret", "Secret key", "password"),
    h("p", { class: "hint" }, "The keys stay in this page, which signs its requests with them. Reloading it signs out."),
    h("button", { type: "submit", class: "primary" }, "Sign in"));
  form.addEventListener("submit", doing(async () => {
    const { access, secret } = Object.fromEntries(new FormData(form));
    const region = document.documentElement.dataset.region || "us-east-1";
    const candidate = new Client({ access: access.trim(), secret: secret.trim(), region });
    await candidate.buckets();
    isAdmin = await candidate.admin("GET", "user", { list: "" }).then(() => true, () => false);
    client = candidate;
    fill(document.getElementById("errors"));
    fill(document.getElementById("user"), `${access.trim()} `, button("Sign out", () => { client = null; return show(); }));
    await show();
  }));
  fill(main, form);
  form.querySelector("input").focus();
}

// The part behind the # names pages: a link to a place in the page would leave it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
chooseTheme(document.getElementById("theme"));
window.addEventListener("hashchange", show);
document.addEventListener("nacre-reload", show);
show();
