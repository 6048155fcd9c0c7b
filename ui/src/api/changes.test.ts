import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Refresher, followChanges, type Changed, type Tools, type Word } from "./changes";
import type { StreamEvent } from "./events";

/** A browser: tabs that share a channel and a lock, in front of a server whose streams the test writes. */
class Browser {
  streams: { push: (e: Changed) => void; fail: () => void }[] = [];
  refuse: number | null = null;
  slept: number[] = [];
  private tabs = new Set<(word: Word) => void>();
  private lock: Promise<void> = Promise.resolve();

  tab(): Tools {
    const tabs = this.tabs;
    let own: ((word: Word) => void) | undefined;
    const channel: Tools["channel"] = {
      hear: (on) => tabs.add((own = on)),
      post: (word) => [...tabs].forEach((tab) => tab !== own && queueMicrotask(() => tabs.has(tab) && tab(structuredClone(word)))),
      close: () => own && tabs.delete(own),
    };
    return {
      channel,
      open: async (signal) => {
        if (this.refuse !== null) throw Object.assign(new Error("no"), { status: this.refuse });
        return this.stream(signal);
      },
      alone: (signal, work) => {
        const turn = this.lock.then(() => (signal.aborted ? undefined : work()));
        this.lock = turn;
        return turn;
      },
      sleep: (ms) => (this.slept.push(ms), turn()),
    };
  }

  private async *stream(signal: AbortSignal): AsyncGenerator<StreamEvent> {
    const ready: StreamEvent[] = [];
    let wake = () => {};
    let failed = false;
    this.streams.push({ push: (e) => (ready.push({ name: "changes", data: JSON.stringify(e) }), wake()), fail: () => ((failed = true), wake()) });
    signal.addEventListener("abort", () => wake());
    for (;;) {
      while (ready.length > 0) yield ready.shift()!;
      if (failed) throw new Error("cut");
      if (signal.aborted) return;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
const turn = () => new Promise<void>((resolve) => setTimeout(resolve)); // of the event loop

function follow(browser: Browser) {
  const seen: { changed: Changed[]; live: boolean[]; down: boolean[] } = { changed: [], live: [], down: [] };
  const end = followChanges({ changed: (c) => seen.changed.push(c), live: (l) => seen.live.push(l), down: (d) => seen.down.push(d) }, browser.tab());
  return { ...seen, end };
}

describe("changes", () => {
  it("are read by one tab and reach all, also after that tab is closed", async () => {
    const browser = new Browser();
    const one = follow(browser);
    await settle();
    const two = follow(browser);
    await settle();
    expect(browser.streams).toHaveLength(1);
    expect([one.live, two.live]).toEqual([[true], [true]]);
    browser.streams[0]!.push({ threads: ["a"], runs: [] });
    await settle();
    expect([one.changed.slice(1), two.changed]).toEqual([[{ threads: ["a"], runs: [] }], [{ threads: ["a"], runs: [] }]]);
    one.end();
    await settle();
    expect(browser.streams).toHaveLength(2);
    browser.streams[1]!.push({ threads: ["b"] });
    await settle();
    expect(two.changed.slice(1)).toEqual([{ all: true }, { threads: ["b"] }]); // between the two streams anything may have changed
    expect(one.changed).toHaveLength(2);
    two.end();
  });

  it("are polled while the stream is cut, and read as a whole when it is back", async () => {
    const browser = new Browser();
    const tab = follow(browser);
    await settle();
    browser.streams[0]!.fail();
    await settle();
    expect(tab.live).toEqual([true, false, true]);
    expect(tab.changed).toEqual([{ all: true }, { all: true }]);
    tab.end();
  });

  // Tabs read when they are opened and when they hear of a change. In the end each has read what changed last, whatever happened in between.
  it.each(Array.from({ length: 50 }, (_, seed) => seed + 1))("are not missed by any tab in any order of events, seed %i", async (seed) => {
    let state = seed * 7919;
    const random = (n: number) => (state = (state * 48271) % 2147483647) % n;
    const browser = new Browser();
    let version = 0;
    const tabs: { read: number; end: () => void }[] = [];
    const waiting: (() => void)[] = []; // streams that the server has not opened yet
    const openTab = () => {
      const tools = browser.tab();
      const open = tools.open;
      tools.open = async (signal) => {
        await new Promise<void>((resolve) => waiting.push(resolve));
        return open(signal);
      };
      const tab = { read: version, end: () => {} };
      tab.end = followChanges({ changed: () => (tab.read = version), live: () => {}, down: () => {} }, tools);
      tabs.push(tab);
    };
    openTab();
    for (let step = 0; step < 12; step++) {
      switch (random(6)) {
        case 0:
          openTab();
          break;
        case 1:
          if (tabs.length > 1) tabs.splice(random(tabs.length), 1)[0]!.end();
          break;
        case 2:
          browser.streams.at(-1)?.fail();
          break;
        case 3:
          waiting.shift()?.();
          break;
        default:
          version++;
          browser.streams.at(-1)?.push({ threads: ["a"] });
      }
      if (random(2)) await turn();
    }
    while (waiting.length > 0) {
      waiting.shift()!();
      await turn();
    }
    await settle();
    expect(tabs.map((tab) => tab.read)).toEqual(tabs.map(() => version));
    for (const tab of tabs) tab.end();
  });

  it("say in every tab that the server does not answer, from the first refusal until it answers", async () => {
    const browser = new Browser();
    const one = follow(browser);
    await settle();
    browser.refuse = 0;
    browser.streams[0]!.fail();
    await settle();
    const two = follow(browser); // opened meanwhile
    await settle();
    expect([one.down.at(-1), two.down.at(-1)]).toEqual([true, true]);
    expect(browser.slept.slice(0, 4)).toEqual([1_000, 1_000, 2_000, 2_000]);
    browser.refuse = null;
    await settle();
    expect([one.down.at(-1), two.down.at(-1), one.live.at(-1), two.live.at(-1)]).toEqual([false, false, true, true]);
    one.end();
    two.end();
  });
  it("are asked for seldom where the server has no such route", async () => {
    const browser = new Browser();
    browser.refuse = 404;
    const tools = browser.tab();
    const stop = vi.fn();
    tools.sleep = async (ms, signal) => {
      browser.slept.push(ms);
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    };
    const live: boolean[] = [];
    const end = followChanges({ changed: stop, live: (l) => live.push(l), down: () => {} }, tools);
    await settle();
    expect([browser.slept, live]).toEqual([[300_000], [false]]);
    end();
    expect(stop).not.toHaveBeenCalled();
  });
});

describe("Refresher", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const wait = (ms: number) => vi.advanceTimersByTimeAsync(ms);

  it("reads at most once a second, and nothing in a tab that is not seen", async () => {
    const keys: unknown[] = [];
    let hidden = false;
    const r = new Refresher({ cancelQueries: async () => {}, invalidateQueries: async (f) => void keys.push(f?.queryKey) }, () => hidden, () => Date.now());
    r.add({ threads: ["a"] });
    r.add({ threads: ["b"], runs: ["r"] });
    await wait(60);
    expect(keys.splice(0)).toEqual([["threads"], ["recent"], ["runs"], ["thread", "a"], ["thread", "b"]]);
    for (let n = 0; n < 50; n++) {
      r.add({ threads: ["a"] });
      await wait(100);
    }
    expect(keys.splice(0).filter((k) => JSON.stringify(k) === '["threads"]')).toHaveLength(5);
    await wait(2_000);
    keys.length = 0;
    hidden = true;
    r.add({ all: true });
    await wait(60_000);
    expect(keys).toEqual([]);
    hidden = false;
    r.plan();
    await wait(60);
    expect(keys).toEqual([["threads"], ["recent"], ["runs"], ["thread"]]);
    r.stop();
  });

  /** A list on a server that takes a while for each answer, which has what the list had when it was asked. */
  function slowList(takes: number) {
    let version = 0;
    const queries = new QueryClient({ defaultOptions: { queries: { gcTime: Infinity } } });
    const queryFn = () => {
      const seen = version;
      return new Promise<number>((resolve) => setTimeout(() => resolve(seen), takes));
    };
    const observer = new QueryObserver(queries, { queryKey: ["threads"], queryFn });
    const end = observer.subscribe(() => {});
    return { queries, end, change: () => ++version, shown: () => observer.getCurrentResult().data };
  }

  // Whenever a change arrives, before, in or after a read, the first one too, the list has it in the end.
  it.each([0, 30, 51, 120, 199, 230, 900])("shows a change that arrives %i ms after the list was asked for", async (at) => {
    const list = slowList(200);
    const r = new Refresher(list.queries, () => false, () => Date.now());
    await wait(at);
    list.change();
    r.add({ threads: ["a"] });
    await wait(1_500);
    expect(list.shown()).toBe(1);
    r.stop();
    list.end();
  });

  it("lets a slow server answer while things change all the time, and asks a silent one again", async () => {
    const list = slowList(3_000);
    const r = new Refresher(list.queries, () => false, () => Date.now());
    for (let n = 0; n < 200; n++) {
      list.change();
      r.add({ threads: ["a"] });
      await wait(100);
    }
    expect(list.shown()).toBeGreaterThan(100);
    r.stop();
    list.end();
    let asked = 0;
    const silent = new Refresher({ cancelQueries: async () => {}, invalidateQueries: () => (asked++, new Promise(() => {})) }, () => false, () => Date.now());
    silent.add({});
    await wait(60);
    const once = asked;
    silent.add({});
    await wait(9_000);
    expect(asked).toBe(once);
    await wait(2_000);
    expect(asked).toBe(2 * once);
    silent.stop();
  });
});
