import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../api/client";
import { recentRuns } from "../api/runs";
import type { Run, Thread } from "../api/types";
import { Age } from "../parts/age";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { statusOf, useThreads, useTitle } from "../threads/threads";
import { nameOf, runRef, threadRef, type Ref } from "./refs";

interface Props {
  near: Ref | null; // the side that is chosen
  other: string | null;
  onChoose: (ref: string) => void;
}

/** What the missing side may be: runs of the same thread, the last runs of all threads, and threads. */
export function Candidates({ near, other, onChoose }: Props) {
  const own = useQuery({ queryKey: ["runs", near?.thread], enabled: near !== null, queryFn: ({ signal }) => get<Run[]>(`/threads/${near!.thread}/runs?limit=100`, signal), retry: false });
  const recent = useQuery({ queryKey: ["recent", "compare"], queryFn: async ({ signal }) => (await recentRuns({}, signal)).runs, retry: false });
  const threads = useThreads();
  const runs = unique([...(own.data ?? []), ...(recent.data ?? [])]).filter((r) => runRef(r.thread_id, r.run_id) !== other);
  const loaded = (threads.data?.pages ?? []).flat().filter((t) => threadRef(t.thread_id) !== other);
  return (
    <>
      <p className="quiet">{other ? `Choose what to compare ${nameOf(other)} with` : "Choose the first of two"}; for a checkpoint, press Compare in the State of a thread.</p>
      <p>
        <Link href="/try">Try two assistants, or two versions of one, on the same input</Link>
      </p>
      <Problem error={own.error ?? recent.error ?? threads.error} />
      <div className="columns">
        <section aria-label="Runs">
          <h2>Runs</h2>
          {recent.isSuccess && runs.length === 0 && <Empty>There is no other run.</Empty>}
          <ol className="runs">
            {runs.slice(0, 50).map((r) => (
              <li key={r.run_id}>
                <Status of={r.status} />
                <button type="button" className="link" onClick={() => onChoose(runRef(r.thread_id, r.run_id))}>
                  {nameOf(runRef(r.thread_id, r.run_id))}
                </button>
                {"graph_id" in r && <b>{String(r.graph_id)}</b>}
                {r.thread_id === near?.thread && <span className="quiet">same thread</span>}
                <Age of={r.created_at} />
              </li>
            ))}
          </ol>
        </section>
        <section aria-label="Threads">
          <h2>Threads</h2>
          {threads.isSuccess && loaded.length === 0 && <Empty>There is no other thread.</Empty>}
          <ol className="runs">
            {loaded.slice(0, 50).map((t) => (
              <li key={t.thread_id}>
                <Status of={statusOf(t)} />
                <button type="button" className="link" onClick={() => onChoose(threadRef(t.thread_id))}>
                  <Title of={t} />
                </button>
                <Age of={t.updated_at} />
              </li>
            ))}
          </ol>
        </section>
      </div>
    </>
  );
}

const Title = ({ of }: { of: Thread }) => useTitle(of);

const unique = (runs: Run[]) => [...new Map(runs.map((r) => [r.run_id, r])).values()];
