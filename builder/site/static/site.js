// What the pages do beyond text: the theme, the day, filters, the search. Every page is complete without it.
"use strict";

const root = document.body.dataset.root;
const day = () => new Date().toISOString().slice(0, 10);

// --- the theme: the system's, light, or dark ---

function themes() {
  const button = document.getElementById("theme");
  const html = document.documentElement;
  const next = { auto: "light", light: "dark", dark: "auto" };
  const show = () => {
    button.textContent = `Theme: ${html.dataset.theme ?? "auto"}`;
  };
  button.addEventListener("click", () => {
    const theme = next[html.dataset.theme ?? "auto"];
    if (theme === "auto") delete html.dataset.theme;
    else html.dataset.theme = theme;
    try {
      if (theme === "auto") localStorage.removeItem("vetted-theme");
      else localStorage.setItem("vetted-theme", theme);
    } catch {
      // storage is switched off: the theme lasts as long as the page
    }
    show();
  });
  show();
}

// --- the day: a page that was made last year must not show a certificate as valid that has expired since ---

function word(element, text) {
  element.textContent = text;
  element.className = `state ${text.replaceAll(" ", "-")}`;
}

function onTheDay(element, shown) {
  const spans = element.dataset.spans.split(" ").map((span) => span.split("/"));
  element.dataset.word ??= element.textContent;
  const judged = element.dataset.word;
  if (judged === "does not hold") return; // whatever the day
  if (spans.some(([first, last]) => first <= shown && shown <= last)) word(element, "certified");
  else if (spans.some(([, last]) => last < shown)) word(element, "expired");
  else word(element, element.dataset.otherwise || "not built");
}

function showDay(shown) {
  for (const element of document.querySelectorAll("[data-spans]")) onTheDay(element, shown);
  const caption = document.getElementById("shown-day");
  if (caption) caption.textContent = shown;
}

function verdicts() {
  for (const element of document.querySelectorAll("[data-until]")) {
    if (element.dataset.until >= day()) continue;
    element.className = "verdict expired";
    const line = element.querySelector("p");
    line.textContent = `This certificate expired on ${element.dataset.until}, after this page was made.`;
  }
}

// --- filters of tables and lists ---

let pagefind = null;

async function engine() {
  if (pagefind === null) {
    pagefind = await import(new URL(`${root}pagefind/pagefind.js`, document.baseURI));
    await pagefind.options({ baseUrl: new URL(root || "./", document.baseURI).pathname });
  }
  return pagefind;
}

// The pages of a kind that match, the best first; null where no search is possible (a file: address, an old browser).
async function matches(text, kind, most) {
  try {
    const search = await (await engine()).search(text, kind ? { filters: { kind } } : {});
    const pages = await Promise.all(search.results.slice(0, most).map((result) => result.data()));
    return Object.assign(pages, { total: search.results.length });
  } catch {
    return null;
  }
}

const inText = (row, words) => words.every((one) => row.dataset.text.toLowerCase().includes(one));

function filters(form) {
  const list = document.getElementById(form.dataset.filters);
  const rows = [...list.querySelectorAll("[data-text]")];
  const output = form.querySelector("output");
  let latest = 0;
  const apply = async () => {
    const turn = ++latest;
    const values = Object.fromEntries(new FormData(form));
    if (values.day) showDay(values.day);
    const words = (values.text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let pages = null;
    if (words.length && form.dataset.kind) pages = await matches(values.text, form.dataset.kind, 200);
    if (turn !== latest) return; // the reader has typed on
    const paths = pages && new Set(pages.map((page) => page.url.split("/").pop()));
    let count = 0;
    for (const row of rows) {
      const states = [...row.querySelectorAll(".state")].map((state) => state.textContent);
      const link = row.querySelector("a")?.getAttribute("href");
      const shown =
        (inText(row, words) || Boolean(paths?.has(link))) &&
        (!values.device || row.dataset.device === values.device) &&
        (!values.stack || row.dataset.stack.split(" ").includes(values.stack)) &&
        (!values.state || states.some((state) => state.includes(values.state)));
      row.hidden = !shown;
      count += shown;
    }
    output.textContent = `${count} of ${rows.length} shown`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}

// --- the step from one stack to another ---

function compare(form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { from, to } = Object.fromEntries(new FormData(form));
    if (from === to) form.querySelector("output").textContent = "Choose two different stacks.";
    else location.href = `${encodeURIComponent(from)}/${encodeURIComponent(to)}.html`;
  });
}

// --- the search over all pages ---

function result(page) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = page.url;
  link.textContent = page.meta.title;
  const excerpt = document.createElement("p");
  // HTML with <mark> around the words: nothing else of it gets into the page.
  for (const node of new DOMParser().parseFromString(page.excerpt, "text/html").body.childNodes) {
    const part = document.createElement(node.nodeName === "MARK" ? "mark" : "span");
    part.textContent = node.textContent;
    excerpt.append(part);
  }
  item.append(link, excerpt);
  return item;
}

function search(form) {
  const status = document.getElementById("search-state");
  const list = document.getElementById("results");
  let latest = 0;
  const apply = async () => {
    const turn = ++latest;
    const { text, kind } = Object.fromEntries(new FormData(form));
    const address = new URLSearchParams(Object.entries({ text, kind }).filter(([, value]) => value)).toString();
    history.replaceState(null, "", address ? `?${address}` : location.pathname);
    const pages = text.trim() ? await matches(text, kind, 30) : [];
    if (turn !== latest) return;
    list.replaceChildren(...(pages ?? []).map(result));
    if (pages === null) status.textContent = "The search needs a web server: python3 -m http.server in this folder.";
    else if (!text.trim()) status.textContent = "";
    else status.textContent = `${pages.total > pages.length ? `${pages.length} of ` : ""}${pages.total} results`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  const asked = new URLSearchParams(location.search);
  form.elements.text.value = asked.get("text") ?? "";
  form.elements.kind.value = asked.get("kind") ?? "";
  apply();
}

// --- commands, and the address of this site in them ---

function commands() {
  for (const code of document.querySelectorAll("code[data-url]")) {
    if (location.protocol.startsWith("http")) {
      const here = new URL(root || "./", document.baseURI).href;
      code.textContent = code.textContent.replaceAll("https://YOUR.SITE/", here);
    }
  }
  if (!navigator.clipboard) return;
  for (const box of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(box.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 2000);
    });
    box.append(button);
  }
}

themes();
showDay(day());
verdicts();
for (const form of document.querySelectorAll("form[data-filters]")) {
  if (form.elements.day) form.elements.day.value = day();
  filters(form);
}
for (const form of document.querySelectorAll("#compare")) compare(form);
for (const form of document.querySelectorAll("#search")) search(form);
commands();
