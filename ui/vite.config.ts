import { brotliCompressSync, constants } from "node:zlib";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
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

export default defineConfig(({ command }) => ({
  base: "./",
  plugins: [
    react(),
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
  build: { outDir: out, emptyOutDir: false, modulePreload: { polyfill: false }, target: "es2022", assetsInlineLimit: 0, reportCompressedSize: false },
  // `npm run dev` serves the sources in front of a server that runs: UNDERSTUDY_URL=http://127.0.0.1:2024 npm run dev
  server: command === "serve" ? { proxy: { "^/(?!studio|src|@|node_modules)": process.env.UNDERSTUDY_URL ?? "http://127.0.0.1:2024" } } : undefined,
}));
