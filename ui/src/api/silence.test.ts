import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { StreamEvent } from "./events";
import { beatOf, patience, untilSilent, type Hearing } from "./silence";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const silent = () => new Error("silent");

/** A stream that is heard of when the test says so, and ends with what its signal was aborted with. */
async function* hanging(signal: AbortSignal): AsyncGenerator<StreamEvent> {
  await new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));
}

const forever = (signal: AbortSignal) => new Promise<never>((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));

/** An open stream whose server says that it beats so often; failed: why it failed. */
async function listening(every: number, signal = new AbortController().signal) {
  let hearing: Hearing;
  const events = await untilSilent(async (signal, h) => ((hearing = h), h.beats(every), hanging(signal)), signal, silent);
  const next = events[Symbol.asyncIterator]().next();
  const failed = vi.fn();
  next.catch(failed);
  return { beat: () => hearing.heard(), next, failed };
}

it("a server that hangs is noticed, however long it was heard of before", async () => {
  const { beat, failed } = await listening(1_000);
  for (let n = 0; n < 10; n++) {
    await vi.advanceTimersByTimeAsync(2_249);
    beat();
  }
  expect(failed).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(2_500);
  expect(failed).toHaveBeenCalledWith(silent());
});

it("a server that beats more seldom, or does not say how often, is not taken for one that hangs", async () => {
  const seldom = await listening(5_000);
  for (let n = 0; n < 10; n++) {
    await vi.advanceTimersByTimeAsync(7_500);
    seldom.beat();
  }
  expect(seldom.failed).not.toHaveBeenCalled();
  const before = await listening(beatOf(new Headers()));
  await vi.advanceTimersByTimeAsync(600_000);
  expect(before.failed).not.toHaveBeenCalled();
  expect(beatOf(new Headers({ "X-Understudy-Heartbeat": "1000" }))).toBe(1_000);
});

it("a server that is slow to open a stream is waited for, and one that does not answer is noticed", async () => {
  const failed = vi.fn();
  untilSilent((signal) => forever(signal), new AbortController().signal, silent).catch(failed);
  await vi.advanceTimersByTimeAsync(patience - 1);
  expect(failed).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  expect(failed).toHaveBeenCalledWith(silent());
});

it("a page that was busy reads what has arrived before it says that nothing did", async () => {
  vi.useRealTimers();
  const left = new AbortController();
  const { beat, failed, next } = await listening(200, left.signal); // silent for 500 ms
  const begun = performance.now();
  while (performance.now() < begun + 600); // no timer runs meanwhile
  await new Promise((resolve) => setTimeout(resolve)); // those that are late run
  expect(failed).not.toHaveBeenCalled();
  beat();
  left.abort();
  await expect(next).rejects.toBe(left.signal.reason);
});

it("leaves no timer behind a stream that ended or was left", async () => {
  const left = new AbortController();
  const { next } = await listening(1_000, left.signal);
  left.abort();
  await expect(next).rejects.toBe(left.signal.reason);
  expect(vi.getTimerCount()).toBe(0);
});

it("does not wait for a stream that was left before it was opened", async () => {
  const left = new AbortController();
  left.abort();
  await expect(untilSilent(async (signal) => (signal.throwIfAborted(), hanging(signal)), left.signal, silent)).rejects.toBe(left.signal.reason);
  expect(vi.getTimerCount()).toBe(0);
});
