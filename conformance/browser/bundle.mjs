// Builds the pages of this folder in memory and serves them.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

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

/** The page on @langchain/react. */
export async function bundleReact() {
  return (await build({ ...options, entryPoints: [`${here}page/react.jsx`] })).outputFiles[0].text;
}

/** The page on assistant-ui. */
export async function bundleAssistant() {
  return (await build({ ...options, entryPoints: [`${here}page/assistant.jsx`] })).outputFiles[0].text;
}

/** The example for React in README.md, for the given server and graph. With blocks it sends a list of content blocks in place of a string. */
export async function bundleReadme(api, assistant, blocks = false) {
  const readme = await readFile(new URL("../../README.md", import.meta.url), "utf8");
  const example = readme.match(/```jsx\n([\s\S]*?)```/)[1];
  const contents = example.replace(/apiUrl: "[^"]*"/, () => `apiUrl: ${JSON.stringify(api)}`).replace(/assistantId: "[^"]*"/, () => `assistantId: ${JSON.stringify(assistant)}`)
    .replace('content: form.get("text")', (text) => (blocks ? 'content: [{ type: "text", text: form.get("text") }]' : text))
    + '\nimport { createRoot } from "react-dom/client";\ncreateRoot(document.getElementById("root")).render(<Chat />);\n';
  return (await build({ ...options, stdin: { contents, loader: "jsx", resolveDir: here } })).outputFiles[0].text;
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
