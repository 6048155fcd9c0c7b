import { brotliCompressSync, constants } from "node:zlib";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const out = process.env.STUDIO_DIST ?? new URL("../studio/dist", import.meta.url).pathname;

/** Keeps only what the server sends: each file compressed by brotli, as NAME.br. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const path = join(entry.parentPath, entry.name);
        const body = readFileSync(path);
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: body.length };
        writeFileSync(`${path}.br`, brotliCompressSync(body, { params }));
        rmSync(path);
      }
    },
  };
}

/** Writes the licenses of all packages that are in the pages, which must go with them. */
function licenses(): Plugin {
  return {
    name: "licenses",
    apply: "build",
    generateBundle() {
      const folders = new Set<string>();
      for (const id of this.getModuleIds()) {
        const found = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id.replace(/^\0/, ""));
        if (found) folders.add(found[1]!);
      }
      const texts = [...folders].filter((folder) => existsSync(join(folder, "package.json"))).map((folder) => {
        const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<string, string>;
        const file = readdirSync(folder).find((f) => /^licen[cs]e(\.|$)/i.test(f));
        return `${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), "utf8").trim() : "The package has no text of its license."}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.sort().join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

export default defineConfig(({ command }) => ({
  base: "./",
  plugins: [
    react(),
    licenses(),
    compressed(),
    {
      name: "empty",
      apply: "build",
      buildStart() {
        rmSync(out, { recursive: true, force: true });
        mkdirSync(out, { recursive: true });
      },
    },
  ],
  worker: { format: "es" },
  build: { outDir: out, emptyOutDir: false, modulePreload: { polyfill: false }, target: "es2022", assetsInlineLimit: 0, reportCompressedSize: false },
  // `npm run dev` serves the sources in front of a server that runs: UNDERSTUDY_URL=http://127.0.0.1:2024 npm run dev
  server: command === "serve" ? { proxy: { "^/(?!studio|src|@|node_modules)": process.env.UNDERSTUDY_URL ?? "http://127.0.0.1:2024" } } : undefined,
}));
