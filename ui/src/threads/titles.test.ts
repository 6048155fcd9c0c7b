import { expect, it } from "vitest";
import type { Thread } from "../api/types";
import { Titles } from "./titles";

/** A server with threads, and which of them it has extracted from. */
function server() {
  const states = new Map<string, { at: string; title: string }>();
  const extracted: string[][] = [];
  const rows = (ids: string[], extract: object | undefined): Thread[] => {
    if (extract) extracted.push(ids);
    return ids.filter((id) => states.has(id)).map((id) => ({ thread_id: id, state_updated_at: states.get(id)!.at, ...(extract && { extracted: { title: states.get(id)!.title } }) }) as unknown as Thread);
  };
  const titles = new Titles();
  const list = async () => (await titles.add(async ({ extract }) => rows([...states.keys()], extract), async (ids, { extract }) => rows(ids, extract))).map((t) => t.extracted?.title);
  return { states, extracted, list, titles };
}

it("extracts from the threads whose state has changed", async () => {
  const { states, extracted, list } = server();
  states.set("a", { at: "1", title: "A" }).set("b", { at: "1", title: "B" });
  expect(await list()).toEqual(["A", "B"]);
  expect(await list()).toEqual(["A", "B"]);
  expect(extracted).toEqual([["a", "b"]]);
  states.set("b", { at: "2", title: "B2" }).set("c", { at: "1", title: "C" });
  expect(await list()).toEqual(["A", "B2", "C"]);
  expect(extracted).toEqual([["a", "b"], ["b", "c"]]);
  states.delete("a");
  expect(await list()).toEqual(["B2", "C"]);
  expect(extracted.length).toBe(2);
});

it("shows a thread whose state changes between both reads, and then the newer one", async () => {
  const { titles } = server();
  const row = (at: string, title?: string) => ({ thread_id: "a", state_updated_at: at, ...(title && { extracted: { title } }) }) as unknown as Thread;
  await titles.add(async () => [row("1", "A")], async () => []);
  const [shown] = await titles.add(async () => [row("2")], async () => [row("3", "A3")]);
  expect(shown!.extracted?.title).toBe("A3");
  let asked = 0;
  await titles.add(async () => [row("3")], async () => (asked++, []));
  expect(asked).toBe(0);
});

it("looks for the first words of a thread while its first run is active", async () => {
  const { titles } = server();
  const row = (status: string, first?: string) => ({ thread_id: "a", state_updated_at: "1", status, extracted: { first } }) as unknown as Thread;
  await titles.add(async () => [row("busy")], async () => []);
  const [shown] = await titles.add(async () => [row("busy")], async () => [row("busy", "hello")]);
  expect(shown!.extracted?.first).toBe("hello");
  let asked = 0;
  for (const status of ["busy", "idle"]) await titles.add(async () => [row(status)], async () => (asked++, []));
  expect(asked).toBe(0);
});

it("shows the words of every thread of a list, however many it has seen before", async () => {
  const { states, list } = server();
  for (let n = 0; n < 5_000; n++) states.set(`${n}`, { at: "1", title: `T${n}` });
  await list();
  for (let n = 0; n < 4_990; n++) states.delete(`${n}`);
  for (let n = 0; n < 40; n++) states.set(`new ${n}`, { at: "1", title: `N${n}` });
  states.set("0", { at: "1", title: "T0" });
  expect((await list()).every(Boolean)).toBe(true);
  expect((await list()).every(Boolean)).toBe(true);
});
