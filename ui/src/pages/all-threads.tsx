import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import type { JsonObject, Thread, ThreadStatus } from "../api/types";
import { Age } from "../parts/age";
import { Choice } from "../parts/choice";
import { CopyCall } from "../parts/copy-call";
import { count, plural } from "../parts/format";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { Found, useSettled } from "../threads/found";
import { parseMetadata } from "../threads/metadata";
import { statusOf, titleOf, useThreads, words, type ThreadFilter } from "../threads/threads";
import { useAllAssistants } from "./assistants";
import { ChangeThreads } from "./change-threads";

const statuses: ThreadStatus[] = ["idle", "busy", "interrupted", "error"];

/** All threads with what is known of each, found by status, graph and metadata; some, or all that match, are deleted, cut to their newest state, or made to expire. */
export default function AllThreads() {
  const [params, setParams] = useSearchParams();
  const text = params.get("metadata") ?? "";
  const status = params.get("status") ?? "";
  const graph = params.get("graph") ?? "";
  const said = params.get("text") ?? "";
  const settled = useSettled(text);
  const { metadata, wrong } = read(settled);
  const filter: ThreadFilter = { ...(status && { status: status as ThreadStatus }), ...((graph || wrong === null) && { metadata: { ...metadata, ...(graph && { graph_id: graph }) } }) };
  const threads = useThreads(filter, true);
  const graphs = [...new Set(useAllAssistants().data?.map((a) => a.graph_id))].sort();
  const all = [...new Map((threads.data?.pages.flat() ?? []).map((t) => [t.thread_id, t])).values()];
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [changing, setChanging] = useState<string[] | ThreadFilter | null>(null);
  const picked = all.filter((t) => chosen.has(t.thread_id)).map((t) => t.thread_id);
  const choose = (ids: string[], on: boolean) => setChosen((old) => new Set(on ? [...old, ...ids] : [...old].filter((id) => !ids.includes(id))));
  const set = (name: string, value: string) =>
    setParams(
      (old) => {
        value ? old.set(name, value) : old.delete(name);
        return old;
      },
      { replace: true },
    );
  return (
    <main className="page wide all-threads">
      <div className="bar">
        <h1>All threads</h1>
        <CopyCall of={{ method: "POST", path: "/threads/search", body: { ...filter, limit: 50, sort_by: "updated_at", sort_order: "desc" } as JsonObject }} />
      </div>
      <div className="bar filters">
        <Choice label="Status" value={status} values={statuses} onChange={(v) => set("status", v)} />
        <Choice label="Graph" value={graph} values={graphs} onChange={(v) => set("graph", v)} />
        <input type="search" data-key="/" aria-label="Metadata" aria-invalid={wrong !== null} placeholder="Metadata: owner=ada, or JSON" value={text} onChange={(e) => set("metadata", e.target.value)} />
        <input type="search" aria-label="Words in messages" placeholder="Words in messages" value={said} onChange={(e) => set("text", e.target.value)} />
      </div>
      {wrong !== null && <p className="wrong" role="alert">{wrong}</p>}
      {said && <Found words={said} nameOf={(id) => { const t = all.find((known) => known.thread_id === id); return t ? titleOf(t) : `thread …${id.slice(-8)}`; }} />}
      <div className="bar filters">
        <button type="button" className={picked.length === 0 ? "plain" : ""} disabled={picked.length === 0} onClick={() => setChanging(picked)}>
          Change {picked.length === 0 ? "chosen threads" : plural(picked.length, "thread")}…
        </button>
        <button type="button" className="plain" aria-describedby={said ? "not-by-words" : undefined} disabled={said !== "" || wrong !== null || settled !== text || all.length === 0} onClick={() => setChanging(filter)}>
          Change all that match…
        </button>
        {said && (
          <span id="not-by-words" className="quiet">
            Words find messages and do not filter the list below. Clear them to change all that match.
          </span>
        )}
      </div>
      {changing && <ChangeThreads of={changing} onClose={() => (setChanging(null), setChosen(new Set()))} />}
      <Problem error={threads.error} />
      {threads.isSuccess && all.length === 0 && <Empty>{status || graph || text ? "No thread matches." : "No threads yet. Say something to begin one."}</Empty>}
      {all.length > 0 && (
        <div className="scrolls" tabIndex={0} role="region" aria-label="Threads">
          <table>
            <thead>
              <tr>
                <th scope="col">
                  <input type="checkbox" aria-label="Choose all that are shown" checked={picked.length === all.length} onChange={(e) => choose(all.map((t) => t.thread_id), e.target.checked)} />
                </th>
                <th scope="col">Thread</th>
                <th scope="col">Graph</th>
                <th scope="col">Owner</th>
                <th scope="col" title="Of the last answer: how long the conversation is to its model">Tokens</th>
                <th scope="col">Changed</th>
              </tr>
            </thead>
            <tbody>
              {all.map((t) => (
                <Line key={t.thread_id} thread={t} chosen={chosen.has(t.thread_id)} onChoose={(on) => choose([t.thread_id], on)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {threads.hasNextPage && (
        <button type="button" className="plain" disabled={threads.isFetchingNextPage} onClick={() => void threads.fetchNextPage()}>
          Older threads
        </button>
      )}
    </main>
  );
}

function read(text: string): { metadata: JsonObject; wrong: string | null } {
  try {
    return { metadata: parseMetadata(text), wrong: null };
  } catch (e) {
    return { metadata: {}, wrong: e instanceof Error ? e.message : String(e) };
  }
}

function Line({ thread: t, chosen, onChoose }: { thread: Thread; chosen: boolean; onChoose: (on: boolean) => void }) {
  const title = titleOf(t);
  const last = words(t.extracted?.last).trim();
  return (
    <tr data-thread={t.thread_id}>
      <td>
        <input type="checkbox" aria-label={`Choose ${title}`} checked={chosen} onChange={(e) => onChoose(e.target.checked)} />
      </td>
      <td>
        <span className="bar">
          <Status of={statusOf(t)} />
          <Link href={`/t/${t.thread_id}`}>{title}</Link>
        </span>
        {last && <span className="quiet last">{last.slice(0, 200)}</span>}
      </td>
      <td>{String(t.metadata?.graph_id ?? "")}</td>
      <td>{typeof t.metadata?.owner === "string" ? t.metadata.owner : ""}</td>
      <td className="numbers">{typeof t.extracted?.tokens === "number" ? count(t.extracted.tokens) : ""}</td>
      <td>
        <Age of={t.updated_at} />
      </td>
    </tr>
  );
}
