import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { RotateCcw, Square } from "lucide-react";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import { usePoll } from "../api/use-changes";
import { post } from "../api/client";
import { readAgain } from "../api/read-again";
import { isActive, recentPath, recentRuns, type RecentRun } from "../api/runs";
import { useOwn } from "../api/server";
import { CompareButton } from "../compare/chosen";
import { runRef } from "../compare/refs";
import { describe } from "../conversation/reducer";
import { Age } from "../parts/age";
import { Choice } from "../parts/choice";
import { CopyButton } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { duration } from "../parts/format";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { useAllAssistants } from "./assistants";
import { CancelMatching, type ActiveFilter } from "./cancel-matching";

const statuses = ["pending", "running", "success", "error", "timeout", "interrupted"];

/** The runs of all threads, newest first: what runs, what waits, what failed and why. */
export function Runs() {
  const [params, setParams] = useSearchParams();
  const status = params.get("status") ?? "";
  const graph = params.get("graph") ?? "";
  const queries = useQueryClient();
  const own = useOwn();
  const assistants = useAllAssistants();
  const graphs = [...new Set(assistants.data?.map((a) => a.graph_id))].sort();
  const runs = useInfiniteQuery({
    queryKey: ["recent", status, graph],
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) => recentRuns({ status, graph, before: pageParam }, signal),
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: usePoll(own === false ? 20_000 : 5_000), // a request for each thread
  });
  const all = [...new Map((runs.data?.pages ?? []).flatMap((p) => p.runs).map((r) => [r.run_id, r])).values()];
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const picked = all.filter((r) => chosen.has(r.run_id) && isActive(r));
  const stoppable = all.filter(isActive);
  const cancel = useMutation({
    mutationFn: async (list: RecentRun[]) => {
      for (const thread_id of new Set(list.map((r) => r.thread_id))) {
        await post("/runs/cancel", { thread_id, run_ids: list.filter((r) => r.thread_id === thread_id).map((r) => r.run_id) });
      }
    },
    onSettled: () => (setChosen(new Set()), readAgain(queries, ["recent"])),
  });
  const [cancelling, setCancelling] = useState(false);
  const active = status === "" || status === "pending" || status === "running" ? { status: status as ActiveFilter["status"], graph } : null;
  const set = (name: string, value: string) =>
    setParams((old) => {
      value ? old.set(name, value) : old.delete(name);
      return old;
    });
  return (
    <main className="page wide">
      <div className="bar">
        <h1>Runs</h1>
        {own && <CopyCall of={{ method: "GET", path: recentPath({ status, graph }) }} />}
      </div>
      <div className="bar filters">
        <Choice label="Status" value={status} values={statuses} onChange={(v) => set("status", v)} />
        <Choice label="Graph" value={graph} values={graphs} onChange={(v) => set("graph", v)} />
        {stoppable.length > 0 && (
          <>
            <button type="button" className="plain" onClick={() => setChosen(new Set(picked.length === stoppable.length ? [] : stoppable.map((r) => r.run_id)))}>
              {picked.length === stoppable.length ? "Choose none" : `Choose all ${stoppable.length} active`}
            </button>
            <button type="button" disabled={picked.length === 0 || cancel.isPending} onClick={() => confirm(`Cancel ${picked.length} runs?`) && cancel.mutate(picked)}>
              <Square size={12} aria-hidden /> Cancel {picked.length || ""}
            </button>
          </>
        )}
        {own && active && (stoppable.length > 0 || runs.hasNextPage) && (
          <button type="button" className="plain" onClick={() => setCancelling(true)}>
            Cancel all that match…
          </button>
        )}
      </div>
      {active && cancelling && <CancelMatching filter={active} onClose={() => setCancelling(false)} />}
      {own === false && <p className="quiet">Of the threads that changed last: this server has no list of all runs.</p>}
      <Problem error={runs.error ?? cancel.error} />
      {runs.isSuccess && all.length === 0 && !runs.hasNextPage && <Empty>{status || graph ? "No run is like this." : "Nothing has run yet."}</Empty>}
      <ol className="runs">
        {all.map((r) => (
          <Line key={r.run_id} run={r} timeline={own === true} chosen={chosen.has(r.run_id)} onChoose={(on) => setChosen((old) => new Set(on ? [...old, r.run_id] : [...old].filter((other) => other !== r.run_id)))} />
        ))}
      </ol>
      {runs.hasNextPage && (
        <button type="button" className="plain" disabled={runs.isFetchingNextPage} onClick={() => void runs.fetchNextPage()}>
          Older runs
        </button>
      )}
    </main>
  );
}

/** Why a run does not run yet, or where it does. */
function why({ waits_for, server, created_at }: RecentRun): string {
  if (waits_for === "time") return `waits until ${new Date(created_at).toLocaleString()}`;
  if (waits_for === "thread") return "waits for another run of its thread";
  if (waits_for === "job") return "waits for a server with a free job";
  return server ? `on server …${server.slice(-8)}` : "";
}

function Line({ run, timeline, chosen, onChoose }: { run: RecentRun; timeline: boolean; chosen: boolean; onChoose: (on: boolean) => void }) {
  const ran = run.started_at ? Date.parse(run.ended_at ?? run.updated_at) - Date.parse(run.started_at) : null;
  const waited = run.started_at ? Date.parse(run.started_at) - Date.parse(run.created_at) : null;
  return (
    <li data-run={run.run_id}>
      {isActive(run) && <input type="checkbox" aria-label={`Choose run ${run.run_id}`} checked={chosen} onChange={(e) => onChoose(e.target.checked)} />}
      <Status of={run.status} text />
      <b>{run.graph_id}</b>
      {timeline && <Link href={`/r/${run.run_id}`}>timeline</Link>}
      <Link href={`/t/${run.thread_id}?panel=runs`}>thread …{run.thread_id.slice(-8)}</Link>
      <span className="quiet numbers">
        {[
          ran !== null && !isActive(run) && `took ${duration(ran)}`,
          why(run),
          waited !== null && waited > 1_000 && `waited ${duration(waited)}`,
          run.attempt > 1 && `attempt ${run.attempt}`,
        ]
          .filter(Boolean)
          .join(", ")}
      </span>
      <CompareButton of={runRef(run.thread_id, run.run_id)} />
      <CopyButton text={run.run_id} label={`Copy ${run.run_id}`} />
      <Age of={run.created_at} />
      {run.error && <p className="why">{describe(run.error).slice(0, 500)}</p>}
      {run.error && (
        <Link href={`/t/${run.thread_id}?panel=state`} className="quiet">
          <RotateCcw size={12} aria-hidden /> look at its state, change it, run again
        </Link>
      )}
    </li>
  );
}

