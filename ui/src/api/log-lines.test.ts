import { expect, test } from "vitest";
import { joined, type Line } from "./log-lines";

const line = (server: string, seq: number, time: string): Line => ({ server, seq, time, level: "info", message: `${server}${seq}`, attributes: {} });

test("lines of several servers are in the order of their times, each once, and bounded", () => {
  const first = [line("a", 1, "2026-01-01T00:00:01+00:00"), line("b", 1, "2026-01-01T00:00:03+00:00")];
  const late = [line("a", 2, "2026-01-01T00:00:02+00:00"), line("b", 1, "2026-01-01T00:00:03+00:00")];
  expect(joined(first, late).map((l) => l.message)).toEqual(["a1", "a2", "b1"]);
  const many = Array.from({ length: 1500 }, (_, i) => line("a", i, new Date(i * 1000).toISOString()));
  expect(joined([], many).length).toBe(1000);
  expect(joined(many, []).at(-1)!.seq).toBe(1499);
});
