// Code that asks the server for what a page shows.

import type { Json, JsonObject } from "./types";

/** A request of the API. */
export interface Call {
  method: "GET" | "POST";
  path: string; // with the query
  body?: JsonObject;
}

export const languages = ["curl", "Python", "JavaScript"] as const;
export type Language = (typeof languages)[number];

/** What asks for it: a command, or a program for the SDK of LangGraph. Credentials are left out. */
export function snippet(language: Language, url: string, call: Call): string {
  switch (language) {
    case "curl":
      return curl(url, call);
    case "Python":
      return python(url, pythonCall(call));
    case "JavaScript":
      return javaScript(url, call);
  }
}

/** A method of the SDKs, in the words of Python, and its arguments: by position, and by name. */
interface Method {
  name: string;
  args: Json[];
  named: JsonObject;
}

/** The requests that have a method of their own. */
const methods: [RegExp, (ids: string[], named: JsonObject) => Method][] = [
  [/^POST \/threads\/search$/, (_, named) => ({ name: "threads.search", args: [], named })],
  [/^POST \/runs\/crons\/search$/, (_, named) => ({ name: "crons.search", args: [], named })],
  [/^POST \/store\/items\/search$/, (_, { namespace_prefix = [], ...named }) => ({ name: "store.search_items", args: [namespace_prefix], named })],
  [/^POST \/assistants\/([^/]+)\/versions$/, (args, named) => ({ name: "assistants.get_versions", args, named })],
  [/^GET \/assistants\/([^/]+)\/graph$/, (args, named) => ({ name: "assistants.get_graph", args, named })],
  [/^GET \/threads\/([^/]+)\/runs$/, (args, named) => ({ name: "runs.list", args, named })],
];

function methodOf({ method, path, body }: Call): Method | null {
  const [plain, query] = path.split("?") as [string, string?];
  for (const [pattern, make] of methods) {
    const found = pattern.exec(`${method} ${plain}`);
    if (found) return make(found.slice(1), body ?? Object.fromEntries([...new URLSearchParams(query)].map(([name, text]) => [name, /^(\d+|true|false)$/.test(text) ? (JSON.parse(text) as Json) : text])));
  }
  return null;
}

/** A text as one word of a shell; what needs no quotes gets none. */
export const word = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : quoted(text));

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl(url: string, { method, path, body }: Call): string {
  const data = body === undefined ? "" : ` -H 'content-type: application/json' -d ${quoted(JSON.stringify(body))}`;
  return `curl ${method === "GET" ? "" : `-X ${method} `}${quoted(url + path)}${data}`;
}

/** A value as Python writes it. JSON's texts are Python's too, but for characters beyond 16 bits, which are left as they are. */
function literal(value: Json): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${literal(v)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function pythonCall(call: Call): string {
  const m = methodOf(call);
  if (m) return `client.${m.name}(${[...m.args.map(literal), ...Object.entries(m.named).map(([k, v]) => `${k}=${literal(v)}`)].join(", ")})`;
  return `client.http.${call.method.toLowerCase()}(${JSON.stringify(call.path)}${call.body ? `, json=${literal(call.body)}` : ""})`;
}

/** A program that prints what a call returns. */
const python = (url: string, call: string) => `# pip install langgraph-sdk
import asyncio

from langgraph_sdk import get_client


async def main():
    client = get_client(url=${JSON.stringify(url)})
    print(await ${call})


asyncio.run(main())
`;

const camel = (name: string) => name.replaceAll(/_(\w)/g, (_, c: string) => c.toUpperCase());

function javaScript(url: string, call: Call): string {
  const m = methodOf(call);
  if (!m) {
    const options = call.body ? `, {\n  method: ${JSON.stringify(call.method)},\n  headers: { "content-type": "application/json" },\n  body: JSON.stringify(${JSON.stringify(call.body)}),\n}` : "";
    return `// In a file that ends in .mjs\nconst response = await fetch(${JSON.stringify(url + call.path)}${options});\nconsole.log(JSON.stringify(await response.json(), null, 2));\n`;
  }
  const named = Object.fromEntries(Object.entries(m.named).map(([k, v]) => [camel(k), v]));
  const args = [...m.args, ...(Object.keys(named).length > 0 ? [named] : [])].map((a) => JSON.stringify(a)).join(", ");
  return `// npm install @langchain/langgraph-sdk, in a file that ends in .mjs
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: ${JSON.stringify(url)} });
console.log(JSON.stringify(await client.${camel(m.name)}(${args}), null, 2));
`;
}

/** Programs that talk to an assistant, or give its graph an input. */
export function talking(language: Language, url: string, assistant: string, input: JsonObject): string {
  switch (language) {
    case "curl":
      return curl(url, { method: "POST", path: "/runs/stream", body: { assistant_id: assistant, input, stream_mode: ["updates"] } }).replace("curl ", "curl -N ") + "\n";
    case "Python":
      return `# pip install langgraph-sdk
import asyncio

from langgraph_sdk import get_client


async def main():
    client = get_client(url=${JSON.stringify(url)})
    thread = await client.threads.create()
    async for part in client.runs.stream(thread["thread_id"], ${JSON.stringify(assistant)}, input=${literal(input)}, stream_mode="updates"):
        print(part.event, part.data)


asyncio.run(main())
`;
    case "JavaScript":
      return `// npm install @langchain/langgraph-sdk, in a file that ends in .mjs
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: ${JSON.stringify(url)} });
const thread = await client.threads.create();
const input = ${JSON.stringify(input)};
for await (const part of client.runs.stream(thread.thread_id, ${JSON.stringify(assistant)}, { input, streamMode: "updates" })) {
  console.log(part.event, JSON.stringify(part.data));
}
`;
  }
}
