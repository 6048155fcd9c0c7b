// Builds the pages again and compares them with studio/dist, which is committed; checks that they stay small.
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const committed = new URL("../studio/dist", import.meta.url).pathname;
const built = mkdtempSync(join(tmpdir(), "studio-"));
process.env.STUDIO_DIST = built;
process.on("exit", () => rmSync(built, { recursive: true, force: true }));

/** Kilobytes, compressed: of what every page needs, of a page's own part, and of all styles. */
const limits = { first: 150, page: 60, styles: 15 };

const files = (dir) => readdirSync(dir, { recursive: true, withFileTypes: true }).filter((e) => e.isFile()).map((e) => join(e.parentPath, e.name).slice(dir.length + 1)).sort();
const complain = (text) => {
  console.error(`${text}\n`);
  process.exitCode = 1;
};

const { build } = await import("vite");
await build({ logLevel: "error" });
const [ours, fresh] = [files(committed), files(built)];
// Compressed bytes depend on the version of Node.js; what they hold does not.
const same = ours.join() === fresh.join() && ours.every((name) => brotliDecompressSync(readFileSync(join(committed, name))).equals(brotliDecompressSync(readFileSync(join(built, name)))));
if (!same) complain(`studio/dist is not what ui/ makes: run make ui, and commit studio/dist.\ncommitted: ${ours.join(" ")}\nbuilt:     ${fresh.join(" ")}`);

for (const name of fresh) {
  const kind = name.endsWith(".css.br") ? "styles" : /^assets\/index-.*\.js\.br$/.test(name) ? "first" : "page";
  const size = readFileSync(join(built, name)).length / 1000;
  if (size > limits[kind]) complain(`${name} has ${size.toFixed(1)} kB, more than ${limits[kind]}`);
}
if (!process.exitCode) console.log(`studio/dist is up to date: ${fresh.length} files, ${(fresh.reduce((n, f) => n + readFileSync(join(built, f)).length, 0) / 1000).toFixed(0)} kB`);
