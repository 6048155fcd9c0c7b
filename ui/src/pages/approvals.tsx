import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { readAgain } from "../api/read-again";
import { answerThread } from "../api/runs";
import type { JsonObject, Thread } from "../api/types";
import { Interrupts } from "../interrupts/interrupts";
import { Age } from "../parts/age";
import { CopyCall } from "../parts/copy-call";
import { Empty, Problem } from "../parts/problem";
import { asks, useThreads, useTitle } from "../threads/threads";

/** Every thread that waits for a person, the one that changed last first. */
export function Approvals() {
  const threads = useThreads({ status: "interrupted" });
  const waiting = (threads.data?.pages.flat() ?? []).filter(asks);
  return (
    <main className="page">
      <div className="bar">
        <h1>Approvals</h1>
        <CopyCall of={{ method: "POST", path: "/threads/search", body: { status: "interrupted", limit: 50, sort_by: "updated_at", sort_order: "desc" } }} />
      </div>
      <Problem error={threads.error} />
      {threads.isSuccess && waiting.length === 0 && <Empty>Nothing waits for an answer.</Empty>}
      {waiting.map((t) => (
        <Waiting key={t.thread_id} thread={t} />
      ))}
      {threads.hasNextPage && (
        <button type="button" className="plain" onClick={() => void threads.fetchNextPage()}>
          More
        </button>
      )}
    </main>
  );
}

function Waiting({ thread }: { thread: Thread }) {
  const queries = useQueryClient();
  const [error, setError] = useState<unknown>(null);
  const [sent, setSent] = useState(false);
  const answer = async (command: JsonObject) => {
    try {
      setError(null);
      setSent(true);
      await answerThread(thread, command);
      await readAgain(queries, ["threads"]);
    } catch (e) {
      setSent(false);
      setError(e);
    }
  };
  return (
    <article className="card" data-thread={thread.thread_id}>
      <header className="bar">
        <Link href={`/t/${thread.thread_id}`}>{useTitle(thread)}</Link>
        <Age of={thread.updated_at} />
      </header>
      <Interrupts interrupts={Object.values(thread.interrupts ?? {}).flat()} busy={sent} onAnswer={answer} />
      <Problem error={error} />
    </article>
  );
}
