"use strict";

// Search. The index is loaded when somebody begins to search; it is a script, because pages opened from a disk cannot fetch files.
const input = document.getElementById("search");
const found = document.getElementById("found");
let index;

function load() {
  index ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "search-index.js";
    script.onload = () => resolve(window.searchIndex.map((e) => ({ ...e, low: [e.head || e.title, e.title, e.text].map((t) => t.toLowerCase()) })));
    script.onerror = reject;
    document.head.append(script);
  });
  return index;
}

// score is 0 unless every word occurs; headings count more than titles, titles more than text, beginnings of words more than their middle.
function score(entry, words) {
  let sum = 0;
  for (const word of words) {
    let best = 0;
    entry.low.forEach((text, i) => {
      const at = text.indexOf(word);
      if (at < 0) return;
      const begins = text.startsWith(word) || new RegExp("[^\\p{L}\\p{N}]" + word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "u").test(text);
      best = Math.max(best, [20, 10, 2][i] * (begins ? 2 : 1));
    });
    if (!best) return 0;
    sum += best;
  }
  return sum;
}

function excerpt(text, words) {
  const at = Math.max(0, Math.min(...words.map((w) => text.toLowerCase().indexOf(w)).filter((n) => n >= 0)) || 0);
  const from = Number.isFinite(at) ? Math.max(0, at - 40) : 0;
  return (from ? "…" : "") + text.slice(from, from + 140);
}

async function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return show([]);
  const entries = await load();
  const best = entries.map((e) => [score(e, words), e]).filter(([s]) => s).sort(([a], [b]) => b - a).slice(0, 12);
  show(best.map(([, e]) => e), words);
}

function show(entries, words) {
  found.hidden = !input.value;
  found.replaceChildren(...entries.map((e) => {
    const a = document.createElement("a");
    a.href = e.page;
    const title = document.createElement("strong");
    title.textContent = e.head ? e.title + " › " + e.head : e.title;
    const text = document.createElement("span");
    text.textContent = excerpt(e.text, words);
    a.append(title, text);
    const li = document.createElement("li");
    li.append(a);
    return li;
  }));
  if (!entries.length && input.value) found.append(Object.assign(document.createElement("li"), { textContent: "Nothing found." }));
}

input.addEventListener("input", search);
document.addEventListener("keydown", (e) => {
  const links = [...found.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (e.key === "/" && !["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement.tagName)) {
    e.preventDefault();
    input.focus();
  } else if (e.key === "Escape") {
    found.hidden = true;
  } else if ((e.key === "ArrowDown" || e.key === "ArrowUp") && !found.hidden && (at >= 0 || document.activeElement === input)) {
    e.preventDefault();
    (links[at + (e.key === "ArrowDown" ? 1 : -1)] ?? input).focus();
  } else if (e.key === "Enter" && document.activeElement === input) {
    links[0]?.click();
  }
});
document.addEventListener("click", (e) => { if (!e.target.closest(".search")) found.hidden = true; });

// Code: a button that copies, and diagrams.
for (const pre of document.querySelectorAll("body:not(.api) main pre")) {
  const code = pre.querySelector("code");
  if (!code || code.classList.contains("language-mermaid")) continue;
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  pre.append(button);
}
if (window.mermaid) {
  for (const code of document.querySelectorAll("code.language-mermaid")) {
    const diagram = Object.assign(document.createElement("div"), { className: "mermaid", textContent: code.textContent });
    code.parentElement.replaceWith(diagram);
  }
  window.mermaid.initialize({ startOnLoad: false, theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "neutral" });
  window.mermaid.run();
}

// The reference of the API. A server describes itself, and requests go to it, whatever path it has in front of a proxy.
async function reference(node) {
  const live = !window.openapi;
  const spec = window.openapi ?? await (await fetch("../openapi.json")).json();
  if (live) spec.servers = [{ url: new URL("..", document.baseURI).href.replace(/\/$/, "") }];
  window.SwaggerUIBundle({
    spec,
    domNode: node,
    deepLinking: true,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    filter: true,
    tryItOutEnabled: live,
    ...(live ? {} : { supportedSubmitMethods: [] }),
    validatorUrl: null,
  });
}
const api = document.getElementById("api");
if (api) reference(api);
