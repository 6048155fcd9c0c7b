import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../api/client";
import { recentRuns, type RecentRun } from "../api/runs";
import { Age } from "../parts/age";
import { CopyButton, ID } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { bytes, duration } from "../parts/format";
import { Problem } from "../parts/problem";
import { Status } from "../parts/status";

interface Server {
  id: string;
  version: string;
  address: string | null;
  host: string;
  pid: number;
  mode: string;
  started_at: string;
  heartbeat_at: string;
  jobs: number;
  running: number;
  workers: number;
  memory_bytes: number;
  worker_memory_bytes?: number[]; // these are not of older versions
  blocked?: number;
  blocked_at?: string | null;
  problems?: Trouble[];
  draining: boolean;
}

/** Why a graph cannot be used; with reload, why the last change of files was not taken over. */
interface Trouble {
  graph: string | null; // null: the configuration
  at: string | null; // file:line
  error: string;
  reload: boolean;
}

/** How old a heartbeat may be, in ms: servers report every five seconds. */
const late = 20_000;

/** How many of its runs a server shows. */
const most = 10;

/** The servers of the database: which live, how much they do, which end, and what is wrong with their graphs. */
export default function Servers() {
  const path = "/understudy/servers";
  const servers = useQuery({ queryKey: ["servers"], queryFn: ({ signal }) => get<{ servers: Server[] }>(path, signal), refetchInterval: 5_000 });
  const running = useQuery({ queryKey: ["recent", "running"], queryFn: async ({ signal }) => (await recentRuns({ status: "running" }, signal)).runs, refetchInterval: 5_000 });
  const list = servers.data?.servers ?? [];
  const newest = Math.max(...list.map((s) => Date.parse(s.heartbeat_at))); // by the servers' clock
  return (
    <main className="page wide">
      <div className="bar">
        <h1>Servers</h1>
        <CopyCall of={{ method: "GET", path }} />
      </div>
      <Problem error={servers.error ?? running.error} />
      <ol className="servers">
        {list.map((s, i) => (
          <Machine key={s.id} server={s} answers={i === 0} silent={newest - Date.parse(s.heartbeat_at)} now={newest} runs={running.data?.filter((r) => r.server === s.id) ?? []} />
        ))}
      </ol>
    </main>
  );
}

function Machine({ server: s, answers, silent, now, runs }: { server: Server; answers: boolean; silent: number; now: number; runs: RecentRun[] }) {
  const facts: [string, string][] = [
    ["runs", s.jobs < 0 ? String(s.running) : `${s.running} of ${s.jobs}`],
    ["Python workers", String(s.workers)],
    ["memory", s.memory_bytes > 0 ? bytes(s.memory_bytes) : "–"],
    ...(s.worker_memory_bytes?.length ? [["memory of workers", s.worker_memory_bytes.map(bytes).join(", ")] as [string, string]] : []),
    ...(s.blocked ? [["blocked event loops", `${s.blocked}, last at ${s.blocked_at}`] as [string, string]] : []),
    ["up", duration(now - Date.parse(s.started_at))],
    ["heartbeat", silent < 1_000 ? "now" : `${duration(silent)} ago`],
    ["version", s.version],
    ["process", `${s.pid} on ${s.host}`],
    ["mode", s.mode],
  ];
  return (
    <li className="card" data-server={s.id}>
      <div className="bar">
        <Status of={s.draining ? "interrupted" : silent > late ? "timeout" : "success"} text word={s.draining ? "draining" : silent > late ? "silent" : "running"} />
        <b className="grow">{s.address ?? "no port"}</b>
        {answers && <span className="tag">answers you</span>}
        <ID id={s.id} />
      </div>
      <meter aria-label="Runs that it executes, of those that it may" min={0} max={Math.max(1, s.jobs)} value={s.running} />
      <dl className="facts numbers">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Troubles of={s.problems ?? []} />
      {runs.length > 0 && (
        <ol className="runs" aria-label="Runs that it executes">
          {runs.slice(0, most).map((r) => (
            <li key={r.run_id}>
              <Status of={r.status} />
              <b>{r.graph_id}</b>
              <Link href={`/r/${r.run_id}`}>timeline</Link>
              <Link href={`/t/${r.thread_id}`}>thread …{r.thread_id.slice(-8)}</Link>
              {r.attempt > 1 && <span className="tag">taken over, attempt {r.attempt}</span>}
              {r.lease_until && <span className="quiet numbers" title="Without a report of this server until then, another one takes the run over">{leaseOf(Date.parse(r.lease_until) - now)}</span>}
              <Age of={r.started_at ?? r.created_at} />
            </li>
          ))}
        </ol>
      )}
      <div className="bar">
        <Link href={`/logs?server=${s.id}`}>its log</Link>
        {runs.length > most && <Link href="/runs?status=running">all runs that are executed</Link>}
      </div>
    </li>
  );
}

const leaseOf = (left: number) => (left < 0 ? "lease over: it is taken over" : `lease for ${duration(left)}`);

/** What keeps graphs of a server from being used or loaded again, with the place in their files. */
function Troubles({ of }: { of: Trouble[] }) {
  return (
    <>
      {of.map((t, i) => (
        <Problem key={i} error={`${t.reload ? "Not reloaded" : "Not imported"}${t.graph ? `: ${t.graph}` : ""}`}>
          {t.at && (
            <p className="bar">
              <code>{t.at}</code>
              <CopyButton text={t.at} label="Copy the place" />
            </p>
          )}
          <p>{t.error}</p>
          {t.reload && <p>The version before stays in service. The files are read again when they change.</p>}
        </Problem>
      ))}
    </>
  );
}
