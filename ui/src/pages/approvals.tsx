import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { answerer } from "../api/missing";
import { readAgain } from "../api/read-again";
import { beginRun } from "../api/runs";
import type { JsonObject, Thread } from "../api/types";
import { Interrupts } from "../interrupts/interrupts";
import { Age } from "../parts/age";
import { CopyCall } from "../parts/copy-call";
import { Empty, Problem } from "../parts/problem";
import { StandIn } from "../parts/stand-in";
import { asks, useThreads, useTitle } from "../threads/threads";
import { useMissing, useRefused } from "./assistants";

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
  const { metadata: of } = thread;
  const missing = useMissing(of.assistant_id);
  const refused = useRefused();
  const answer = async (command: JsonObject) => {
    try {
      setError(null);
      setSent(true);
      await beginRun(thread.thread_id, { assistant_id: answerer(of, missing), command });
      await readAgain(queries, ["threads"]);
    } catch (e) {
      setSent(false);
      setError(e);
      refused(e);
    }
  };
  return (
    <article className="card" data-thread={thread.thread_id}>
      <header className="bar">
        <Link href={`/t/${thread.thread_id}`}>{useTitle(thread)}</Link>
        <Age of={thread.updated_at} />
      </header>
      {missing && of.graph_id && <StandIn name={String(of.graph_id)} />}
      <Interrupts interrupts={Object.values(thread.interrupts ?? {}).flat()} busy={sent} onAnswer={answer} />
      <Problem error={error} />
    </article>
  );
}
