import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { StreamEvent } from "./events";
import { patience, untilSilent } from "./silence";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const silent = () => new Error("silent");

/** A stream that is heard of when the test says so, and ends with what its signal was aborted with. */
async function* hanging(signal: AbortSignal): AsyncGenerator<StreamEvent> {
  await new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));
}

it("a server that hangs is noticed, however long it was heard of before", async () => {
  let beat = () => {};
  const events = await untilSilent(async (signal, heard) => ((beat = heard), hanging(signal)), new AbortController().signal, silent);
  const next = events[Symbol.asyncIterator]().next();
  const failed = vi.fn();
  next.catch(failed);
  for (let n = 0; n < 10; n++) {
    await vi.advanceTimersByTimeAsync(patience - 1);
    beat();
  }
  expect(failed).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(patience);
  expect(failed).toHaveBeenCalledWith(silent());
});

it("a server that takes a connection and does not answer is noticed", async () => {
  const opening = untilSilent((signal) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted")))), new AbortController().signal, silent);
  const failed = vi.fn();
  opening.catch(failed);
  await vi.advanceTimersByTimeAsync(patience);
  expect(failed).toHaveBeenCalledWith(silent());
});

it("leaves no timer behind a stream that ended or was left", async () => {
  const left = new AbortController();
  const events = await untilSilent(async (signal) => hanging(signal), left.signal, silent);
  const next = events[Symbol.asyncIterator]().next();
  next.catch(() => {});
  left.abort();
  await expect(next).rejects.toBe(left.signal.reason);
  expect(vi.getTimerCount()).toBe(0);
});
