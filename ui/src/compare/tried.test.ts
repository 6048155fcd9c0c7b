import { beforeEach, expect, it, vi } from "vitest";
import type { Assistant } from "../api/types";

const latest = { assistant_id: "a1", graph_id: "agent", name: "agent", version: 2, metadata: {}, created_at: "2026-01-01T00:00:00Z" } as unknown as Assistant;

/** A server with an assistant of two versions. It makes assistants m1, m2…; asked has what it was asked to change. */
function server({ refuses = "" } = {}) {
  const asked: string[] = [];
  let made = 0;
  vi.stubGlobal("document", { baseURI: "http://test/studio/", cookie: "" });
  vi.stubGlobal("fetch", async (url: string, { method = "GET" }: RequestInit = {}) => {
    const path = new URL(url).pathname;
    if (path.endsWith("/versions")) return Response.json([latest, { ...latest, version: 1, config: { tags: ["one"] } }]);
    asked.push(`${method} ${path}`);
    if (path === refuses) return Response.json({ detail: "not yours" }, { status: 403 });
    return method === "POST" ? Response.json({ assistant_id: `m${++made}` }) : new Response(null, { status: 204 });
  });
  return asked;
}

beforeEach(() => vi.resetModules());

it("makes an assistant of an older version only, and deletes it when the next is tried or the page is left", async () => {
  const asked = server();
  const { MadeToTry } = await import("./tried");
  const made = new MadeToTry();
  expect(await made.assistantOf({ id: "a1", version: null }, latest)).toBe("a1");
  expect(await made.assistantOf({ id: "a1", version: 2 }, latest)).toBe("a1");
  expect(await made.assistantOf({ id: "a1", version: 1 }, latest)).toBe("m1");
  await made.discard();
  expect(await made.assistantOf({ id: "a1", version: 1 }, latest)).toBe("m2");
  await made.discard();
  await made.discard();
  expect(asked).toEqual(["POST /assistants", "DELETE /assistants/m1", "POST /assistants", "DELETE /assistants/m2"]);
});

it("deletes one that is made after the page was left", async () => {
  const asked = server();
  const { MadeToTry } = await import("./tried");
  const made = new MadeToTry();
  const making = made.assistantOf({ id: "a1", version: 1 }, latest);
  await made.discard();
  await making;
  expect(asked).toEqual(["POST /assistants", "DELETE /assistants/m1"]);
});

it("deletes those of pages that were closed a day ago, and no others, whatever the server refuses", async () => {
  const asked = server({ refuses: "/assistants/o1" });
  const { deleteForgotten } = await import("./tried");
  const of = (assistant_id: string, created_at: string, metadata: object = { studio_tries: "a1@1" }) => ({ ...latest, assistant_id, created_at, metadata }) as Assistant;
  await deleteForgotten([latest, of("o1", "2026-05-01T11:00:00Z"), of("o2", "2026-05-01T11:00:00Z"), of("new", "2026-05-01T13:00:00Z"), of("else", "2026-05-01T11:00:00Z", { created_by: "studio" })], Date.parse("2026-05-02T12:00:00Z"));
  expect(asked).toEqual(["DELETE /assistants/o1", "DELETE /assistants/o2"]);
});
