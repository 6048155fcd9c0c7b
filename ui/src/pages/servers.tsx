import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../api/client";
import { ID } from "../parts/copy";
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
  draining: boolean;
}

/** How old a heartbeat may be, in ms: servers report every five seconds. */
const late = 20_000;

/** The servers of the database: which live, how much they do, which end. */
export default function Servers() {
  const path = "/understudy/servers";
  const servers = useQuery({ queryKey: ["servers"], queryFn: ({ signal }) => get<{ servers: Server[] }>(path, signal), refetchInterval: 5_000 });
  const list = servers.data?.servers ?? [];
  const newest = Math.max(...list.map((s) => Date.parse(s.heartbeat_at))); // by the servers' clock
  return (
    <main className="page wide">
      <div className="bar">
        <h1>Servers</h1>
        <CopyCall of={{ method: "GET", path }} />
      </div>
      <Problem error={servers.error} />
      <ol className="servers">
        {list.map((s, i) => (
          <Machine key={s.id} server={s} answers={i === 0} silent={newest - Date.parse(s.heartbeat_at)} now={newest} />
        ))}
      </ol>
    </main>
  );
}

function Machine({ server: s, answers, silent, now }: { server: Server; answers: boolean; silent: number; now: number }) {
  const facts: [string, string][] = [
    ["runs", s.jobs < 0 ? String(s.running) : `${s.running} of ${s.jobs}`],
    ["Python workers", String(s.workers)],
    ["memory", s.memory_bytes > 0 ? bytes(s.memory_bytes) : "–"],
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
      <Link href={`/logs?server=${s.id}`}>its log</Link>
    </li>
  );
}
