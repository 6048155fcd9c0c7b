// Compiles one style sheet with the Tailwind 4 of the project that it is in. Reads a request (tailwind.go) from standard input and prints CSS.
// Errors go to standard error, in words for the author of the style sheet.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const MOST_FILES = 20_000;
const MOST_BYTES = 64 << 20;
const TEXT = /\.(html?|md|mdx|[cm]?[jt]sx?|vue|svelte|astro|py)$/;

function fail(text) {
  console.error(text);
  process.exit(1);
}

const { css, from, base, files } = JSON.parse(fs.readFileSync(0, "utf8"));

// find resolves a package or relative path from a folder.
function find(id, folder) {
  return createRequire(path.join(folder, "none.js")).resolve(id);
}

let compile;
try {
  const module = await import(pathToFileURL(find("tailwindcss", base)));
  compile = module.compile ?? module.default?.compile;
} catch (error) {
  if (error.code !== "MODULE_NOT_FOUND") throw error;
  fail("this style sheet uses Tailwind, which is not installed here: run npm install tailwindcss");
}
if (!compile) fail("this style sheet needs Tailwind 4, and the project has an older one: run npm install tailwindcss@4");

// loadStylesheet follows @import. A package names its style sheet by "style" in package.json or its exports.
async function loadStylesheet(id, folder) {
  const file = sheet(id, folder);
  return { path: file, base: path.dirname(file), content: fs.readFileSync(file, "utf8") };
}

function sheet(id, folder) {
  if (id.startsWith(".") || path.isAbsolute(id)) return path.resolve(folder, id);
  if (fs.existsSync(path.resolve(folder, id))) return path.resolve(folder, id);
  const parts = id.split("/");
  const name = parts.splice(0, id.startsWith("@") ? 2 : 1).join("/");
  const below = parts.length ? "./" + parts.join("/") : ".";
  for (let at = folder; ; at = path.dirname(at)) {
    const home = path.join(at, "node_modules", name);
    if (fs.existsSync(path.join(home, "package.json"))) {
      const about = JSON.parse(fs.readFileSync(path.join(home, "package.json"), "utf8"));
      const listed = about.exports?.[below];
      const named = typeof listed === "string" ? listed : (listed?.style ?? (below === "." ? about.style : below));
      const file = [named, named + ".css"].map((n) => path.join(home, n ?? "index.css")).find((f) => f.endsWith(".css") && fs.existsSync(f));
      if (file) return file;
    }
    if (at === path.dirname(at)) fail(`${path.basename(from)} imports ${id}, which is not there`);
  }
}

async function loadModule(id, folder) {
  const file = find(id, folder);
  const module = await import(pathToFileURL(file));
  return { path: file, base: path.dirname(file), module: module.default ?? module };
}

// candidates are the words of a text that may be utilities, with and without what surrounds them in code. Tailwind passes over those that are not.
const SPLITS = [/\s+/, /[\s"`]+/, /[\s'`]+/, /[\s"'`]+/, /[\s"'`{}()<>;,]+/, /[\s"'`{}()<>;,:=]+/];
const words = new Set();
let read = 0;
let scanned = 0;
function scan(file) {
  const { size } = fs.statSync(file);
  if (++scanned > MOST_FILES || (read += size) > MOST_BYTES) fail(`@source names more than ${MOST_FILES} files or ${MOST_BYTES >> 20} MiB`);
  const text = fs.readFileSync(file, "utf8");
  for (const split of SPLITS) for (const word of text.split(split)) if (word.length < 500) words.add(word);
}

// walk reads the files that a pattern of @source may mean: those of the folder that it begins with. More files than meant make more CSS, no wrong one.
function walk(folder) {
  const stat = fs.statSync(folder, { throwIfNoEntry: false });
  if (!stat) return;
  if (stat.isFile()) return scan(folder);
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory() && entry.name !== "node_modules" && !entry.name.startsWith(".")) walk(file);
    else if (entry.isFile() && TEXT.test(entry.name)) scan(file);
  }
}

// beginning is the part of a pattern before its first wildcard.
function beginning(base, pattern) {
  const parts = pattern.split("/");
  const wild = parts.findIndex((part) => /[*?[{]/.test(part));
  return path.resolve(base, (wild < 0 ? parts : parts.slice(0, wild)).join("/") || ".");
}

try {
  const compiler = await compile(css, { base, from, loadStylesheet, loadModule });
  if (compiler.root !== "none") files.forEach(scan);
  if (compiler.root && compiler.root !== "none") walk(beginning(compiler.root.base, compiler.root.pattern));
  for (const { base, pattern, negated } of compiler.sources) if (!negated) walk(beginning(base, pattern));
  process.stdout.write(compiler.build([...words]));
} catch (error) {
  fail(`Tailwind: ${error.message}`);
}
