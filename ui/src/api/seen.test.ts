import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { inSight, whenSeen, whileSeen } from "./seen";

/** A document that the test hides and shows. */
class Tab extends EventTarget {
  hidden = false;
  set(hidden: boolean) {
    this.hidden = hidden;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("waits until a tab is seen, or nothing waits any more", async () => {
  const tab = new Tab();
  await whenSeen(new AbortController().signal, tab);
  tab.hidden = true;
  let seen = 0;
  const stop = new AbortController();
  void whenSeen(new AbortController().signal, tab).then(() => seen++);
  void whenSeen(stop.signal, tab).then(() => seen++);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(seen).toBe(0);
  stop.abort();
  await vi.advanceTimersByTimeAsync(1);
  expect(seen).toBe(1);
  tab.set(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(seen).toBe(2);
});

it("ends what a tab follows once it was hidden for a while, and not for a moment", async () => {
  const tab = new Tab();
  const stop = new AbortController();
  const one = whileSeen(stop.signal, tab);
  tab.set(true);
  await vi.advanceTimersByTimeAsync(4_000);
  tab.set(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(one.signal.aborted).toBe(false);
  tab.set(true);
  await vi.advanceTimersByTimeAsync(6_000);
  expect(one.signal.aborted).toBe(true);
  one.done();
  tab.set(false);
  const two = whileSeen(stop.signal, tab);
  stop.abort();
  expect(two.signal.aborted).toBe(true);
  two.done();
  expect(vi.getTimerCount()).toBe(0);
});

it("does work while a tab is seen, and says whether it was hidden", async () => {
  const tab = new Tab();
  const stop = new AbortController();
  const begun: AbortSignal[] = [];
  const until = (signal: AbortSignal) => (begun.push(signal), new Promise<void>((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted")))));
  const hidden = inSight(stop.signal, until, tab);
  await vi.advanceTimersByTimeAsync(1);
  tab.set(true);
  await vi.advanceTimersByTimeAsync(6_000);
  expect(await hidden).toBe(true);
  const again = inSight(stop.signal, until, tab);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(begun.length).toBe(1); // nothing begins in a tab that is hidden
  tab.set(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(begun.length).toBe(2);
  stop.abort();
  expect(await again).toBe(false);
  await expect(inSight(new AbortController().signal, () => Promise.reject(new Error("refused")), tab)).rejects.toThrow("refused");
  expect(await inSight(stop.signal, until, tab)).toBe(false); // what has ended does not begin
  expect(begun.length).toBe(2);
  expect(vi.getTimerCount()).toBe(0);
});
