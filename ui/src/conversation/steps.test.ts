import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it, vi } from "vitest";

it("shows the steps of a task on pages whose address names no thread", async () => {
  vi.stubGlobal("document", { baseURI: "http://test/studio/", cookie: "" });
  const { Steps } = await import("./steps");
  const client = new QueryClient();
  client.setQueryData(["steps", "/threads/t1/runs/r1/events?event_types=subagent.step&limit=1000"], [
    { seq: 1, content: { task_id: "call-1", text: "looks for cats", kind: "ai" } },
    { seq: 2, content: { task_id: "call-2", text: "of the other task", kind: "ai" } },
  ]);
  const drawn = (element: React.ReactElement) => renderToStaticMarkup(createElement(QueryClientProvider, { client }, element));
  const steps = drawn(createElement(Steps, { thread: "t1", call: "call-1", run: "r1", running: false }));
  expect([steps.includes("looks for cats"), steps.includes("of the other task")]).toEqual([true, false]);
});
