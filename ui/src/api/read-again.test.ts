import { InfiniteQueryObserver, QueryClient, QueryObserver } from "@tanstack/react-query";
import { describe, expect, it } from "vitest";
import { readAgain } from "./read-again";

/** A list on a server whose answers wait until the test releases them, with what the list had when it was asked. */
function slowList() {
  let now = "old";
  const waiting: (() => void)[] = [];
  return {
    save: (text: string) => void (now = text),
    read: () => {
      const seen = now;
      return new Promise<string>((resolve) => waiting.push(() => resolve(seen)));
    },
    asked: () => waiting.length,
    answer: async (n: number) => {
      waiting[n]!();
      await new Promise((done) => setTimeout(done));
    },
  };
}

const observers = {
  list: (queries: QueryClient, queryFn: () => Promise<string>) => new QueryObserver(queries, { queryKey: ["items", "a"], queryFn }),
  pages: (queries: QueryClient, queryFn: () => Promise<string>) => new InfiniteQueryObserver(queries, { queryKey: ["items", "a"], queryFn, initialPageParam: 0, getNextPageParam: () => undefined }),
};

describe.each(Object.entries(observers))("what is saved while a %s is read is shown", (_, observe) => {
  it.each([
    ["the first time", false],
    ["again", true],
  ])("%s", async (_, known) => {
    const queries = new QueryClient();
    const list = slowList();
    const observer = observe(queries, list.read);
    const end = observer.subscribe(() => {});
    const shown = () => JSON.stringify(observer.getCurrentResult().data);
    if (known) {
      await list.answer(0);
      void observer.refetch();
    }
    list.save("new");
    const before = list.asked();
    const done = readAgain(queries, ["items"]);
    await new Promise((wait) => setTimeout(wait));
    expect(list.asked()).toBe(before + 1);
    await list.answer(before);
    await list.answer(before - 1); // the old answer comes last
    await done;
    expect(shown()).toContain("new");
    end();
  });
});
