import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { get } from "../api/client";
import { useOwn } from "../api/server";
import { Age } from "../parts/age";
import { Problem } from "../parts/problem";

interface Result {
  thread_id: string;
  seq: number;
  message_id: string | null;
  event_type: string;
  created_at: string | null;
  snippet: { text: string; match: boolean }[];
}

interface Page {
  results: Result[];
  next: string | null;
}

const speakers: Record<string, string> = { "llm.human.input": "person", "llm.ai.response": "answer", "llm.tool.result": "tool", "llm.system.input": "system" };

/** A value that stays the same for a moment before others follow it. */
export function useSettled<T>(value: T, ms = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** Messages that have words, newest first, with the text around them: of all threads, or of one. Nothing in front of a server without such a search. */
export function Found({ words, thread, nameOf }: { words: string; thread?: string; nameOf?: (thread: string) => string }) {
  const own = useOwn() === true;
  const text = useSettled(words.trimStart());
  const found = useInfiniteQuery({
    queryKey: ["search", text, thread ?? ""],
    enabled: own && text.trim().length > 1 && /[\p{L}\p{N}]/u.test(text),
    initialPageParam: "",
    retry: false,
    queryFn: ({ pageParam, signal }) => {
      const query = new URLSearchParams({ text, limit: "20" });
      if (thread) query.set("thread_id", thread);
      if (pageParam) query.set("before", pageParam);
      return get<Page>(`/understudy/threads/search?${query}`, signal);
    },
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: (q) => (q.state.data?.pages.every((p) => p.results.length === 0) ? 5_000 : false), // it may not be indexed yet
  });
  if (!own || text.trim().length < 2) return null;
  const results = found.data?.pages.flatMap((p) => p.results) ?? [];
  return (
    <section className="found" aria-label={thread ? "Messages found in this thread" : "Messages found"}>
      <h2>In messages</h2>
      <Problem error={found.error} />
      {found.isSuccess && results.length === 0 && !found.hasNextPage && <p className="quiet">No message has these words.</p>}
      <ol>
        {results.map((r) => (
          <li key={`${r.thread_id} ${r.seq}`} data-seq={r.seq}>
            <Link href={`/t/${r.thread_id}?at=${encodeURIComponent(r.message_id ?? r.seq)}${thread ? "&panel=search" : ""}`}>
              <span className="quiet">
                {speakers[r.event_type] ?? "message"}
                {!thread && ` in ${nameOf?.(r.thread_id) ?? `thread …${r.thread_id.slice(-8)}`}`}
                {r.created_at && <> · <Age of={r.created_at} /></>}
              </span>
              <span className="snippet">
                {r.snippet.map((p, i) => (p.match ? <mark key={i}>{p.text}</mark> : p.text))}
              </span>
            </Link>
          </li>
        ))}
      </ol>
      {found.hasNextPage && (
        <button type="button" className="plain" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          Older messages
        </button>
      )}
    </section>
  );
}

/** The search inside of a thread. */
export function ThreadSearch({ thread }: { thread: string }) {
  const [words, setWords] = useState("");
  return (
    <>
      <input type="search" autoFocus placeholder="Find in this thread" aria-label="Find in this thread" value={words} onChange={(e) => setWords(e.target.value)} />
      <Found words={words} thread={thread} />
    </>
  );
}
