import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Pause, Play, Trash2, Zap } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { get, post, request } from "../api/client";
import { readAgain } from "../api/read-again";
import { beginRun, recentPath, recentRuns } from "../api/runs";
import { usePoll } from "../api/use-changes";
import { describe } from "../conversation/reducer";
import { useOwn } from "../api/server";
import type { Cron, Thread } from "../api/types";
import { Age } from "../parts/age";
import { CopyCall } from "../parts/copy-call";
import { duration, inZone } from "../parts/format";
import { JsonView } from "../parts/json";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { useAllAssistants } from "./assistants";

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
      <div className="bar">
        <h1>Crons</h1>
        <CopyCall of={{ method: "POST", path: "/runs/crons/search", body: { limit: size, sort_by: "next_run_date", sort_order: "asc" } }} />
      </div>
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
  const assistants = useAllAssistants();
  const [began, setBegan] = useState<string | null>(null); // the thread of a run that was begun here
  const own = useOwn();
  const [unfolded, setUnfolded] = useState(false);
  const [results, setResults] = useState(false); // are unfolded
  const zone = cron.timezone ?? "UTC";
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
      <header className="bar wrap">
        <code className="schedule">{cron.schedule}</code>
        <b>{name}</b>
        <span className="quiet">{zone}</span>
        <time dateTime={cron.next_run_date ?? undefined} title={cron.next_run_date ? `${new Date(cron.next_run_date).toLocaleString()} here` : undefined}>
          {!enabled ? "paused" : cron.next_run_date ? `next ${inZone(cron.next_run_date, zone)}` : "over"}
        </time>
      </header>
      {own && (
        <details onToggle={(e) => setUnfolded(e.currentTarget.open)}>
          <summary className="quiet">Next times</summary>
          {unfolded && <Times cron={cron} zone={zone} />}
        </details>
      )}
      {own && (
        <details onToggle={(e) => setResults(e.currentTarget.open)}>
          <summary className="quiet">Last results</summary>
          {results && <Results cron={cron} />}
        </details>
      )}
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

/** How many results of a schedule are shown at first. */
const few = 5;

/** How the last runs of a schedule ended, newest first. */
function Results({ cron }: { cron: Cron }) {
  const filter = { cron: cron.cron_id };
  const runs = useInfiniteQuery({
    queryKey: ["recent", "cron", cron.cron_id],
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) => recentRuns({ ...filter, before: pageParam }, signal),
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: usePoll(5_000),
  });
  const [whole, setWhole] = useState(false);
  const all = runs.data?.pages.flatMap((p) => p.runs) ?? [];
  const shown = whole ? all : all.slice(0, few);
  const more = shown.length < all.length || runs.hasNextPage;
  return (
    <>
      <Problem error={runs.error} />
      {runs.isPending && <p className="quiet">Reading…</p>}
      {runs.isSuccess && all.length === 0 && (
        <p className="quiet">
          {cron.thread_id || cron.on_run_completed === "keep" ? `${runs.hasNextPage ? "None of the last runs on this server is of it" : "It has not run yet"}.` : "Its runs are deleted when they end: make it with on_run_completed=keep, or with a thread, to see how they ended."}
        </p>
      )}
      {all.length > 0 && (
        <ol className="runs" aria-label="Last results">
          {shown.map((r) => (
            <li key={r.run_id} data-run={r.run_id}>
              <Status of={r.status} text />
              <Link href={`/r/${r.run_id}`}>timeline</Link>
              <Link href={`/t/${r.thread_id}`}>thread …{r.thread_id.slice(-8)}</Link>
              {r.started_at && r.ended_at && <span className="quiet numbers">took {duration(Date.parse(r.ended_at) - Date.parse(r.started_at))}</span>}
              <Age of={r.created_at} />
              {r.error && <p className="why">{describe(r.error).slice(0, 500)}</p>}
            </li>
          ))}
        </ol>
      )}
      <div className="bar">
        {more && (
          <button type="button" className="plain" disabled={runs.isFetchingNextPage} onClick={() => (whole || all.length <= few ? void runs.fetchNextPage() : setWhole(true))}>
            Earlier results
          </button>
        )}
        <span className="grow" />
        <CopyCall of={{ method: "GET", path: recentPath(filter) }} what="the results" />
      </div>
    </>
  );
}

/** When a schedule begins its next runs, in its zone and after how long. */
function Times({ cron, zone }: { cron: Cron; zone: string }) {
  const path = `/understudy/crons/${cron.cron_id}/times?limit=5`;
  const { data, error } = useQuery({
    // What decides them, and the next of them: they are read again when it is over.
    queryKey: ["times", cron.cron_id, cron.schedule, zone, cron.next_run_date],
    queryFn: ({ signal }) => get<{ times: string[] }>(path, signal),
  });
  if (error) return <Problem error={error} />;
  if (!data) return <p className="quiet">Reading…</p>;
  return (
    <div className="bar">
      {data.times.length === 0 ? (
        <p className="quiet grow">There are none.</p>
      ) : (
        <ol className="times grow numbers" aria-label="Next times">
          {data.times.map((time) => (
            <li key={time}>
              <time dateTime={time} title={`${new Date(time).toLocaleString()} here`}>
                {inZone(time, zone)}
              </time>
              <span className="quiet">in {duration(Math.max(0, Date.parse(time) - Date.now()))}</span>
            </li>
          ))}
        </ol>
      )}
      <CopyCall of={{ method: "GET", path }} what="the times" />
    </div>
  );
}
