// A server that always says the same, for pictures of the studio: its pages come from studio/dist, its answers from here.
import { readFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";

/** When the pictures are taken. */
export const now = Date.parse("2026-03-02T10:00:00Z");
const at = (secondsAgo) => new Date(now - secondsAgo * 1_000).toISOString().replace("Z", "000+00:00");
const uuid = (n) => `01950000-0000-7000-8000-${String(n).padStart(12, "0")}`;

const thread = uuid(1);
const run = uuid(101);
const checkpoint = (n) => `1f000000-0000-6000-8000-${String(n).padStart(12, "0")}`;
const assistants = [
  ["support", "Answers questions about orders", 3],
  ["researcher", "Reads sources and writes a report", 1],
  ["reviewer", null, 1],
].map(([graph_id, description, version], i) => ({ assistant_id: uuid(50 + i), graph_id, config: i === 0 ? { recursion_limit: 25, tags: ["orders"] } : {}, context: {}, metadata: { created_by: "system" }, name: graph_id, description, version, created_at: at(900_000), updated_at: at(86_000) }));
const [support, researcher] = assistants;
const versions = [
  { ...support, version: 1, config: { recursion_limit: 10 }, created_at: at(900_000), description: "Answers questions" },
  { ...support, version: 2, config: { recursion_limit: 10, tags: ["orders"] }, created_at: at(500_000) },
  { ...support, created_at: at(86_000) },
];

const waitsFor = (name, args, description) => [{ id: "q1", value: { action_requests: [{ name, args, description }], review_configs: [{ action_name: name, allowed_decisions: ["approve", "edit", "reject"] }] } }];
const threads = [
  ["Where is order 4711?", "idle", 40, { pinned: true }],
  ["Refund for two broken cups", "interrupted", 190, {}, { q: waitsFor("refund", { order: 4712, amount: 18.5, currency: "EUR" }, "Refund an order to the card that paid it.") }],
  ["Compare three e-readers", "busy", 600, {}],
  ["Ein sehr langer Titel, der in der schmalen Spalte nicht ganz zu sehen ist", "idle", 4_000, {}],
  ["מתי תגיע ההזמנה שלי?", "error", 90_000, {}],
  ["A parcel was lost", "idle", 200_000, {}],
].map(([title, status, ago, metadata, interrupts = {}], i) => ({
  thread_id: uuid(1 + i), created_at: at(ago + 600), updated_at: at(ago), state_updated_at: at(ago), metadata: { title, graph_id: "support", assistant_id: support.assistant_id, owner: ["ann", "bob"][i % 2], ...metadata }, extracted: { last: ["It left our warehouse on Friday.", "Shall I refund 18.50 EUR?", "", "Die Antwort ist lang."][i] ?? "", tokens: i % 3 === 2 ? null : 1_200 * (i + 1) }, status, config: {}, values: null, interrupts,
}));

const report = `It left our warehouse on **Friday** and is at the depot in Bremen. What happened so far:

| when | where | what |
|---|---|---|
| 27 Feb, 16:20 | Hamburg | handed over |
| 28 Feb, 05:10 | Bremen | sorted |

1. The carrier tried to deliver it on Saturday.
2. Nobody was at home.

\`\`\`python
track("4711").latest()  # {"state": "at depot"}
\`\`\`

> You may also [collect it](https://example.com/depot) until Thursday.`;
const messages = [
  { id: "m1", type: "human", content: "Hello! I ordered four cups last week." },
  { id: "m2", type: "ai", name: "support", content: "Welcome back. What would you like to know about them?", usage_metadata: { input_tokens: 212, output_tokens: 14, total_tokens: 226 } },
  { id: "m3", type: "human", content: "Where is order 4711?" },
  { id: "m4", type: "ai", name: "support", content: [{ type: "reasoning", reasoning: "The order has a number, so the carrier can be asked." }], tool_calls: [{ id: "c1", name: "track", args: { order: "4711", carrier: "any" } }, { id: "c2", name: "opening_hours", args: { depot: "Bremen" } }], usage_metadata: { input_tokens: 1_840, output_tokens: 46, total_tokens: 1_886 } },
  { id: "m5", type: "tool", name: "track", tool_call_id: "c1", content: "handed over, sorted, at depot", status: "success" },
  { id: "m6", type: "tool", name: "opening_hours", tool_call_id: "c2", content: "TimeoutError: no answer within 5 s", status: "error" },
  { id: "m7", type: "ai", name: "support", content: report, usage_metadata: { input_tokens: 2_130, output_tokens: 188, total_tokens: 2_318 } },
];
const rows = [
  ...messages.map((content, i) => ({ seq: i + 2, run_id: run, event_type: `llm.${content.type}.response`, category: "message", content, metadata: { checkpoint_id: checkpoint(Math.min(5, i + 1)) }, created_at: at(90 - i * 5) })),
];
const tree = [5, 4, 3, 2, 1].map((n) => ({ checkpoint_id: checkpoint(n), parent_checkpoint_id: n > 1 ? checkpoint(n - 1) : null, created_at: at(60 - n), step: n - 2, source: n === 1 ? "input" : "loop", run_id: run }));
const state = (changes = {}) => ({
  values: { messages, order: { number: "4711", state: "at depot", pieces: 4, paid: true, discount: null }, attempts: 1, ...changes },
  next: [], tasks: [], metadata: { source: "loop", step: 3, run_id: run }, created_at: at(40), checkpoint: { checkpoint_id: checkpoint(5), thread_id: thread, checkpoint_ns: "" }, parent_checkpoint: { checkpoint_id: checkpoint(4) }, interrupts: [],
});

const runRow = (i, graph, status, ago, took, more = {}) => ({
  run_id: uuid(101 + i), thread_id: uuid(1 + (i % 6)), assistant_id: support.assistant_id, graph_id: graph, status, metadata: {}, created_at: at(ago), updated_at: at(ago - took), started_at: status === "pending" ? null : at(ago - 0.04), ended_at: ["pending", "running"].includes(status) ? null : at(ago - took), attempt: 1, error: null,
  waits_for: status === "pending" ? "thread" : null, server: status === "running" ? uuid(80) : null, lease_until: status === "running" ? at(-14) : null, ...more,
});
const runs = [
  runRow(0, "support", "success", 48, 8.4),
  runRow(1, "researcher", "running", 70, 70, { attempt: 2 }),
  runRow(2, "researcher", "pending", 95, 95),
  runRow(3, "support", "interrupted", 190, 2.1),
  runRow(4, "support", "error", 4_000, 31.2, { error: { error: "RateLimitError", message: "429: too many requests; try again in 20 s" } }),
  runRow(5, "reviewer", "timeout", 90_000, 190),
  runRow(6, "support", "success", 200_000, 0.84),
];
let spanNumber = 0;
const span = (parent_id, kind, name, from, to, more = {}) => ({ id: `s${++spanNumber}`, parent_id, attempt: 1, kind, name, status: "success", start_time: at(48 - from), end_time: at(48 - to), ...more });
const usage = (input_tokens, output_tokens, cached_tokens = 0) => ({ input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, cached_tokens });
const spans = [
  span(null, "queue", "queue", 0, 0.04),
  span(null, "attempt", "support", 0.04, 8.4, { id: "a" }),
  span("a", "node", "model", 0.1, 2.3, { id: "n1", node: "model", step: 1 }),
  span("n1", "model", "gpt-4o", 0.12, 2.28, { id: "m", model: "gpt-4o", provider: "openai", usage: usage(1_840, 46, 1_024), first_token_time: at(47.2) }),
  span("a", "node", "tools", 2.3, 7.4, { id: "n2", node: "tools", step: 2, status: "error" }),
  span("n2", "tool", "track", 2.32, 3.1),
  span("n2", "tool", "opening_hours", 2.32, 7.38, { id: "failed", status: "error", error: { error: "TimeoutError", message: "no answer within 5 s", stack: 'Traceback (most recent call last):\n  File "tools.py", line 14, in opening_hours\n    return await client.get(depot)\nTimeoutError: no answer within 5 s' } }),
  span("a", "node", "model", 7.4, 8.38, { id: "n3", node: "model", step: 3 }),
  span("n3", "model", "gpt-4o", 7.41, 8.37, { model: "gpt-4o", provider: "openai", usage: usage(2_130, 188, 1_840), first_token_time: at(40.3) }),
];

const day = (n) => ({ runs: 40 + ((n * 37) % 61), errors: n % 5 === 0 ? 3 : 0, llm_calls: 90 + n, input_tokens: 90_000 + ((n * 7_919) % 60_000), output_tokens: 9_000 + ((n * 3_571) % 7_000), total_tokens: 0, p50_ms: 900 + ((n * 131) % 700), p95_ms: 4_000 + ((n * 577) % 3_000) });
const total = (entry) => ({ ...entry, total_tokens: entry.input_tokens + entry.output_tokens });
const entry = (n, more) => ({ ...more, ...total(day(n)) });
const report30 = {
  since: "2026-02-01", until: "2026-03-02", total: entry(60, {}), days: Array.from({ length: 30 }, (_, n) => entry(n, { date: new Date(now - (29 - n) * 86_400_000).toISOString().slice(0, 10) })),
  graphs: ["support", "researcher", "reviewer"].map((graph_id, n) => entry(n + 3, { graph_id })), assistants: assistants.map((a, n) => entry(n + 3, { assistant_id: a.assistant_id })),
  models: ["gpt-4o", "claude-sonnet-5"].map((model, n) => entry(n + 7, { model })), callers: ["5f6b2c", null].map((caller, n) => entry(n + 9, { caller })),
};
const servers = [0, 1].map((n) => ({ id: uuid(80 + n), version: "1.4.0", address: `http://10.0.0.${4 + n}:2024`, host: `agents-${n}`, pid: 7 + n, mode: "serve", started_at: at(400_000 - n * 9_000), heartbeat_at: at(2 + n), jobs: 20, running: n ? 3 : 19, workers: 4, memory_bytes: (310 + n * 92) * 1_000_000, worker_memory_bytes: [210, 214, 219, 236].map((mb) => mb * 1_000_000), blocked: n, blocked_at: n ? "support/graph.py:41" : null, problems: n ? [] : [{ graph: "refunds", at: "refunds.py:3", error: "ModuleNotFoundError: No module named 'stripe'", reload: false }], draining: n === 1 }));
const lines = [
  ["info", "request", { method: "POST", route: "/threads/{thread_id}/runs", status: "200", duration_ms: "3.1" }],
  ["info", "run started", { run_id: run, graph: "support", attempt: "1" }],
  ["warn", "a tool failed", { run_id: run, tool: "opening_hours", error: "TimeoutError: no answer within 5 s" }],
  ["info", "run ended", { run_id: run, status: "success", duration_ms: "8400" }],
  ["error", "webhook failed", { url: "https://example.com/hook", token: "[hidden]", error: "connection refused" }],
].map(([level, message, attributes], i) => ({ server: servers[i % 2].id, seq: i + 1, time: at(50 - i * 9), level, message, attributes }));
const crons = [
  ["0 7 * * 1-5", "researcher", true, { messages: [{ role: "user", content: "Summarize the news" }] }],
  ["*/15 * * * *", "support", false, { messages: [] }],
].map(([schedule, , enabled, input], i) => ({ cron_id: uuid(70 + i), assistant_id: i ? support.assistant_id : researcher.assistant_id, thread_id: i ? thread : null, schedule, timezone: i ? null : "Europe/Berlin", enabled, next_run_date: at(-50_000), payload: { input }, created_at: at(9_000), updated_at: at(9_000), metadata: {}, end_time: null, user_id: null }));
const items = [
  { namespace: ["customers", "ann"], key: "preferences", value: { language: "de", likes: ["tea", "quiet"], reachable: { from: 9, to: 17 } }, created_at: at(9_000), updated_at: at(4_000) },
  { namespace: ["customers", "ann"], key: "last_order", value: { number: "4711" }, created_at: at(9_000), updated_at: at(100) },
];
const drawing = {
  nodes: [{ id: "__start__", type: "schema", data: "__start__" }, ...["model", "tools", "summarize"].map((id) => ({ id, type: "runnable", data: { id: [], name: id } })), { id: "__end__", type: "schema", data: "__end__" }],
  edges: [{ source: "__start__", target: "summarize" }, { source: "summarize", target: "model" }, { source: "model", target: "tools", conditional: true, data: "calls" }, { source: "model", target: "__end__", conditional: true }, { source: "tools", target: "summarize" }],
};
const schema = { type: "object", title: "Input", properties: { messages: { type: "array", items: { anyOf: [{ $ref: "#/$defs/HumanMessage" }] } } }, required: ["messages"], $defs: { HumanMessage: { type: "object" } } };
const settings = { type: "object", properties: { model: { type: "string", description: "Which model answers" }, limit: { type: "integer", default: 25 } } };

/** What the API answers, by the end of its path; the first that fits. */
const findings = [
  { check: "config", verdict: "ok", text: "langgraph.json names 2 graphs" },
  { check: "data", verdict: "warning", text: "--data: 812.4 MB free", fix: "free disk space soon; when the disk is full, runs wait" },
  { check: "data", verdict: "ok", text: "--data: /srv/app/.understudy can be written; 812.4 MB free" },
  { check: "python", verdict: "ok", text: "/srv/app/.venv/bin/python, Python 3.12.1, langgraph 1.2.22" },
  { check: "graph", verdict: "ok", text: "support is imported" },
  { check: "graph", verdict: "problem", text: "refunds does not import: ModuleNotFoundError: No module named 'stripe'", fix: "install it: .venv/bin/pip install stripe", details: ['  File "/srv/app/refunds.py", line 3, in <module>', "    import stripe", "ModuleNotFoundError: No module named 'stripe'"] },
];

const answers = [
  [/^\/info$/, { version: "0.16.7", understudy_version: "1.4.0" }],
  [/^\/auth\/methods$/, { api_key: false, token: false, providers: [] }],
  [/^\/assistants\/search$/, assistants],
  [/^\/assistants\/[^/]+\/schemas$/, { graph_id: "support", input_schema: schema, output_schema: schema, state_schema: schema, config_schema: settings, context_schema: settings }],
  [/^\/assistants\/[^/]+\/graph$/, drawing],
  [/^\/assistants\/[^/]+\/versions$/, [...versions].reverse()],
  [/^\/assistants\/[^/]+$/, support],
  [/^\/threads\/search$/, (body) => (body.offset > 0 ? [] : threads.filter((t) => !body.status || t.status === body.status))],
  [/^\/threads\/[^/]+\/messages$/, { data: rows, has_more: false }],
  [/^\/threads\/[^/]+\/state\/1f000000-0000-6000-8000-0+4$/, state({ attempts: 0, order: { number: "4711", state: "unknown", pieces: 4, paid: true, discount: null }, messages: messages.slice(0, 6) })],
  [/^\/threads\/[^/]+\/state/, state()],
  [/^\/threads\/[^/]+\/runs\/[^/]+$/, runs[0]],
  [/^\/threads\/[^/]+\/runs$/, runs.slice(0, 1)],
  [/^\/threads\/[^/]+$/, threads[0]],
  [/^\/understudy\/threads\/[^/]+\/tree$/, tree],
  [/^\/understudy\/runs\/[^/]+\/spans$/, { run: runs[0], spans, next: null }],
  [/^\/understudy\/runs$/, { runs, next: null }],
  [/^\/understudy\/usage$/, report30],
  [/^\/understudy\/servers$/, { servers }],
  [/^\/understudy\/graphs$/, { graphs: assistants.map((a) => a.graph_id) }],
  [/^\/understudy\/logs$/, { lines }],
  [/^\/understudy\/doctor$/, { findings }],
  [/^\/store\/namespaces$/, { namespaces: [["customers", "ann"], ["customers", "bob"], ["products"]] }],
  [/^\/store\/items\/search$/, { items }],
  [/^\/runs\/crons\/search$/, (body) => (body.offset > 0 ? [] : crons)],
];

/** Streams that never say more than their beginning. The rest of the path is whom they are about. */
const streams = [
  [/^\/understudy\/logs\/stream$/, `event: logs\ndata: ${JSON.stringify({ lines })}\n\n`],
];

const dist = new URL("../../studio/dist/", import.meta.url);
const types = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml", txt: "text/plain" };

/** Answers all requests of a context, and returns the list of those that it has no answer for. */
export async function serve(context) {
  const unknown = [];
  await context.route("**/*", async (route) => {
    const request = route.request();
    const { pathname } = new URL(request.url());
    if (pathname.startsWith("/studio/")) {
      const name = pathname.slice("/studio/".length);
      const file = /\.\w+$/.test(name) ? name : "index.html";
      let body = brotliDecompressSync(readFileSync(new URL(`${file}.br`, dist)));
      if (file === "index.html") body = body.toString().replace(/<base href="[^"]*"/, '<base href="/studio/"');
      return route.fulfill({ body, contentType: types[file.split(".").at(-1)] ?? "application/octet-stream" });
    }
    const stream = streams.find(([path]) => path.test(pathname));
    if (stream) return route.fulfill({ body: stream[1], contentType: "text/event-stream" });
    if (/\/(stream|changes)$/.test(pathname)) return; // open, and silent
    const found = answers.find(([path]) => path.test(pathname));
    if (!found) {
      unknown.push(`${request.method()} ${pathname}`);
      return route.fulfill({ status: 404, json: { detail: "not in pictures.mjs" } });
    }
    const body = request.postDataJSON?.() ?? {};
    return route.fulfill({ json: typeof found[1] === "function" ? found[1](body) : found[1] });
  });
  return unknown;
}

const a = `run:${thread}/${run}`;
const b = `checkpoint:${thread}/${checkpoint(4)}`;

/** The pages: their address, what shows that they are complete, whether a narrow screen is pictured too (or what shows it there), and whether docs/studio.md shows it. */
export const pages = [
  { name: "home", path: "", ready: ".choice", narrow: true },
  { name: "all-threads", path: "threads", ready: "tr[data-thread]", narrow: true },
  { name: "thread", path: `t/${thread}`, ready: ".transcript table", narrow: true },
  { name: "state", path: `t/${thread}?panel=state`, ready: ".thread:has(.transcript table) .json details", narrow: ".json details", docs: true },
  { name: "graph", path: `t/${thread}?panel=graph`, ready: ".thread:has(.transcript table) .graph .node" },
  { name: "approvals", path: "approvals", ready: ".question", docs: true },
  { name: "runs", path: "runs", ready: "[data-run]", narrow: true },
  { name: "run", path: `r/${run}?view=timeline&span=failed`, ready: ".stack", narrow: true, docs: true },
  { name: "compare", path: `compare?a=${a}&b=${b}`, ready: ".channels .changes", narrow: true, docs: true },
  { name: "assistant", path: `graphs/${support.assistant_id}`, ready: ".graph .node" },
  { name: "usage", path: "usage", ready: ".usage-chart svg", narrow: true, docs: true },
  { name: "servers", path: "servers", ready: "[data-server]" },
  { name: "store", path: "store?path=customers&path=ann", ready: "article.card" },
  { name: "crons", path: "crons", ready: "article.card" },
  { name: "connect", path: "connect", ready: ".code-block", narrow: true },
  { name: "health", path: "health", ready: ".findings li", narrow: true },
];
