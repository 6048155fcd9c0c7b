// Serves the page, to be tried by hand: BASE_URL=http://127.0.0.1:2024 node serve.mjs
import { bundlePage, servePages } from "./bundle.mjs";

const api = process.env.BASE_URL ?? "http://127.0.0.1:2024";
const { url } = await servePages({ chat: await bundlePage("@langchain/langgraph-sdk") });
for (const assistant of ["agent", "summarizing", "hitl", "tokens"]) console.log(`${url}/chat?${new URLSearchParams({ api, assistant, history: "100" })}`);
