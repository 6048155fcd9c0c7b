// Builds the pages of this folder in memory and serves them.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compile, compileModule } from "svelte/compiler";

const here = fileURLToPath(new URL(".", import.meta.url));
const options = {
  absWorkingDir: here, // aliases are looked up from there
  bundle: true, write: false, format: "esm", target: "es2022", jsx: "automatic", minify: true, logLevel: "error",
  define: { "process.env.NODE_ENV": '"production"' },
};

/** The page on one release of the SDK, given by the name of its package. */
export async function bundlePage(sdk) {
  const alias = sdk === "@langchain/langgraph-sdk" ? {} : { "@langchain/langgraph-sdk": sdk };
  return (await build({ ...options, entryPoints: [`${here}page/app.jsx`], alias })).outputFiles[0].text;
}

/** The page that loads components of a graph. */
export async function bundleComponents() {
  return (await build({ ...options, entryPoints: [`${here}page/components.jsx`] })).outputFiles[0].text;
}

/** The page on @langchain/react. */
export async function bundleReact() {
  return (await build({ ...options, entryPoints: [`${here}page/react.jsx`] })).outputFiles[0].text;
}

/** The page on @langchain/svelte. */
export async function bundleSvelte() {
  const compiled = async (path, by) => ({ contents: by(await readFile(path, "utf8"), { filename: path, generate: "client" }).js.code });
  const plugins = [{
    name: "svelte",
    setup: (to) => {
      to.onLoad({ filter: /\.svelte$/ }, ({ path }) => compiled(path, compile));
      to.onLoad({ filter: /\.svelte\.js$/ }, ({ path }) => compiled(path, compileModule));
    },
  }];
  const contents = 'import { mount } from "svelte";\nimport Chat from "./page/Chat.svelte";\nmount(Chat, { target: document.getElementById("root") });\n';
  return (await build({ ...options, plugins, stdin: { contents, loader: "js", resolveDir: here } })).outputFiles[0].text;
}

/** The page on assistant-ui. */
export async function bundleAssistant() {
  return (await build({ ...options, entryPoints: [`${here}page/assistant.jsx`] })).outputFiles[0].text;
}

/** The examples of a page of Markdown in one language, as printed; those that begin with a comment of their name by that name. */
export async function printed(file, language) {
  const text = await readFile(new URL(`../../${file}`, import.meta.url), "utf8");
  return [...text.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map(([, example]) => example);
}

/** A printed component named Chat on a page, for the given server and graph. With blocks it sends a list of content blocks in place of a string. */
export async function bundleChat(example, api, assistant, blocks = false) {
  const contents = example.replace(/apiUrl: "[^"]*"/, () => `apiUrl: ${JSON.stringify(api)}`).replace(/assistantId: "[^"]*"/, () => `assistantId: ${JSON.stringify(assistant)}`)
    .replace(/content: (said|form\.get\("text"\))/, (text, said) => (blocks ? `content: [{ type: "text", text: ${said} }]` : text))
    + '\nimport { createRoot } from "react-dom/client";\ncreateRoot(document.getElementById("root")).render(<Chat />);\n';
  return (await build({ ...options, stdin: { contents, loader: "jsx", resolveDir: here } })).outputFiles[0].text;
}

/** A printed module that imports another one, ./stream.js. What it adds is run for each event. */
export async function bundlePlain(main, stream, api, assistant, each) {
  const contents = main.replace(/const url = "[^"]*"/, () => `const url = ${JSON.stringify(api)}`).replace(/assistant_id: "[^"]*"/, () => `assistant_id: ${JSON.stringify(assistant)}`)
    .replace("if (event ===", () => `${each};\n  if (event ===`);
  const plugins = [{
    name: "printed",
    setup: (to) => {
      to.onResolve({ filter: /^\.\/stream\.js$/ }, () => ({ path: "stream", namespace: "printed" }));
      to.onLoad({ filter: /.*/, namespace: "printed" }, () => ({ contents: stream }));
    },
  }];
  return (await build({ ...options, plugins, stdin: { contents, loader: "js", resolveDir: here } })).outputFiles[0].text;
}

/** Serves each script as `/<name>`; gives the address and a function that stops it. */
export async function servePages(scripts) {
  const css = await readFile(`${here}page/page.css`, "utf8");
  const page = (name) => `<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>${name}</title>
<style>${css}</style><div id="root"></div><script type="module" src="/${name}.js"></script></html>`;
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://page").pathname.slice(1);
    const script = path.endsWith(".js") ? scripts[path.slice(0, -3)] : undefined;
    if (!script && !(path in scripts)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": script ? "text/javascript" : "text/html" }).end(script ?? page(path));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }) };
}
