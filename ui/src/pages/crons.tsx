import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Pause, Play, Trash2, Zap } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { post, request } from "../api/client";
import { readAgain } from "../api/read-again";
import { beginRun } from "../api/runs";
import type { Cron, Thread } from "../api/types";
import { JsonView } from "../parts/json";
import { Empty, Problem } from "../parts/problem";
import { useAssistants } from "./assistants";

const size = 50;

/** The schedules that begin runs. */
export function Crons() {
  const crons = useInfiniteQuery({
    queryKey: ["crons"],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) => post<Cron[]>("/runs/crons/search", { limit: size, offset: pageParam, sort_by: "next_run_date", sort_order: "asc" }, signal),
    getNextPageParam: (last, pages) => (last.length < size ? undefined : pages.length * size),
    refetchInterval: 15_000,
  });
  const all = crons.data?.pages.flat() ?? [];
  return (
    <main className="page">
      <h1>Crons</h1>
      <Problem error={crons.error} />
      {crons.isSuccess && all.length === 0 && <Empty>Nothing is scheduled. Clients schedule runs with client.crons.create.</Empty>}
      {all.map((cron) => (
        <CronCard key={cron.cron_id} cron={cron} />
      ))}
      {crons.hasNextPage && (
        <button type="button" className="plain" onClick={() => void crons.fetchNextPage()}>
          More
        </button>
      )}
    </main>
  );
}

function CronCard({ cron }: { cron: Cron }) {
  const queries = useQueryClient();
  const assistants = useAssistants();
  const [began, setBegan] = useState<string | null>(null); // the thread of a run that was begun here
  const name = assistants.data?.find((a) => a.assistant_id === cron.assistant_id)?.name ?? cron.assistant_id;
  const changed = () => readAgain(queries, ["crons"]);
  const path = `/runs/crons/${cron.cron_id}`;
  const enabled = cron.enabled !== false;
  const toggle = useMutation({ mutationFn: () => request("PATCH", path, { body: { enabled: !enabled } }), onSuccess: changed });
  const remove = useMutation({ mutationFn: () => request("DELETE", path), onSuccess: changed });
  const now = useMutation({
    mutationFn: async () => {
      const thread = cron.thread_id ?? (await post<Thread>("/threads", { metadata: { assistant_id: cron.assistant_id } })).thread_id;
      const { input, config, context, interrupt_before, interrupt_after } = cron.payload;
      await beginRun(thread, { assistant_id: cron.assistant_id, input, config, context, interrupt_before, interrupt_after, multitask_strategy: "enqueue" });
      return thread;
    },
    onSuccess: setBegan,
  });
  return (
    <article className="card" aria-label={`${cron.schedule} ${name}`}>
      <header className="bar">
        <code>{cron.schedule}</code>
        <b>{name}</b>
        <span className="quiet">{cron.timezone ?? "UTC"}</span>
        <time dateTime={cron.next_run_date ?? undefined}>{!enabled ? "paused" : cron.next_run_date ? `next ${new Date(cron.next_run_date).toLocaleString()}` : "over"}</time>
      </header>
      <JsonView value={cron.payload.input ?? null} open={1} />
      <div className="buttons">
        <button type="button" className="plain" disabled={now.isPending} onClick={() => now.mutate()}>
          <Zap size={14} aria-hidden /> Run now
        </button>
        <button type="button" className="plain" disabled={toggle.isPending} onClick={() => toggle.mutate()}>
          {enabled ? <Pause size={14} aria-hidden /> : <Play size={14} aria-hidden />} {enabled ? "Pause" : "Continue"}
        </button>
        <button type="button" className="icon" aria-label={`Delete ${cron.schedule} ${name}`} onClick={() => confirm(`Delete the schedule ${cron.schedule} of ${name}?`) && remove.mutate()}>
          <Trash2 size={14} />
        </button>
        {cron.thread_id && <Link href={`/t/${cron.thread_id}`}>its thread</Link>}
        {began && <Link href={`/t/${began}`}>the run that began now</Link>}
      </div>
      <Problem error={toggle.error ?? remove.error ?? now.error} />
    </article>
  );
}
