import { useEffect, useRef, useState } from "react";
import { Pause, Play } from "lucide-react";
import { useSearchParams } from "wouter";
import { open } from "../api/client";
import { inSight } from "../api/seen";
import { joined, key, type Line } from "../api/log-lines";
import { CopyCall } from "../parts/copy-call";
import { Empty, Problem } from "../parts/problem";

/** The last lines of the logs of all servers, as they are written. */
export default function Logs() {
  const [params, setParams] = useSearchParams();
  const level = params.get("level") ?? "info";
  const text = params.get("text") ?? "";
  const server = params.get("server") ?? "";
  const requests = params.has("requests");
  const [paused, setPaused] = useState(false);
  const query = new URLSearchParams({ level, ...(!requests && { requests: "false" }), ...(text && { text }), ...(server && { server }) }).toString();
  const { lines, error } = useLines(query, paused);
  const end = useRef<HTMLOListElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    if (follows.current && end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [lines]);
  const set = (name: string, value: string) =>
    setParams((old) => {
      value ? old.set(name, value) : old.delete(name);
      return old;
    }, { replace: true });
  const servers = [...new Set([...(server ? [server] : []), ...(lines ?? []).map((l) => l.server)])];
  return (
    <main className="page wide logs-page">
      <div className="bar">
        <h1>Logs</h1>
        <CopyCall of={{ method: "GET", path: `/understudy/logs?${query}` }} />
      </div>
      <div className="buttons">
        <input type="search" className="grow" data-key="/" aria-label="Find in the logs" placeholder="Find in the logs" value={text} onChange={(e) => set("text", e.target.value)} />
        <label className="bar">
          Level
          <select value={level} onChange={(e) => set("level", e.target.value)}>
            {["debug", "info", "warn", "error"].map((v) => (
              <option key={v}>{v}</option>
            ))}
          </select>
        </label>
        <label className="bar">
          <input type="checkbox" checked={requests} onChange={(e) => set("requests", e.target.checked ? "true" : "")} /> Requests
        </label>
        {servers.length > 1 || server ? (
          <label className="bar">
            Server
            <select value={server} onChange={(e) => set("server", e.target.value)}>
              <option value="">all</option>
              {servers.map((v) => (
                <option key={v} value={v}>
                  …{v.slice(-8)}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        <button type="button" className="plain" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? <Play size={12} aria-hidden /> : <Pause size={12} aria-hidden />} {paused ? "Continue" : "Pause"}
        </button>
      </div>
      <Problem error={error} />
      {lines?.length === 0 && <Empty>{text || server || level !== "info" ? "No line of the last ones is like this." : requests ? "Nothing has been logged." : "Nothing has been logged, except perhaps requests."}</Empty>}
      <ol
        ref={end}
        className="log-lines"
        tabIndex={0}
        aria-label="Lines"
        onScroll={(e) => {
          const list = e.currentTarget;
          follows.current = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
        }}
      >
        {lines?.map((l) => (
          <li key={key(l)} className={l.level}>
            <time dateTime={l.time} title={`${new Date(l.time).toLocaleString()}, server ${l.server}`}>
              {l.time.slice(11, 19)}
            </time>
            <span className="level">{l.level}</span>
            <span className="grow">
              {l.message}
              {Object.entries(l.attributes).map(([name, value]) => (
                <span key={name} className="attribute">
                  {" "}
                  {name}=<span className="value">{value}</span>
                </span>
              ))}
            </span>
          </li>
        ))}
      </ol>
    </main>
  );
}

/** The lines of a query; null until some have come. After an error it connects again, and a tab that is hidden does not stay connected. */
function useLines(query: string, paused: boolean): { lines: Line[] | null; error: unknown } {
  const [lines, setLines] = useState<Line[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => setLines(null), [query]);
  useEffect(() => {
    if (paused) return;
    const ends = new AbortController();
    let timer = 0;
    const follow = async () => {
      const hidden = await inSight(ends.signal, async (signal) => {
        const stream = await open(`/understudy/logs/stream?limit=500&${query}`, { signal });
        for await (const { name, data } of stream) {
          if (name !== "logs") continue;
          const { lines: more } = JSON.parse(data) as { lines: Line[] };
          setError(null);
          setLines((old) => joined(old ?? [], more));
        }
      }).catch(setError);
      if (!ends.signal.aborted) timer = window.setTimeout(follow, hidden ? 0 : 2_000);
    };
    timer = window.setTimeout(follow, 200); // what is typed is not asked for letter by letter
    return () => (ends.abort(), window.clearTimeout(timer));
  }, [query, paused]);
  return { lines, error };
}
