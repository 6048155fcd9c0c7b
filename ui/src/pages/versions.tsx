import { useMutation, useQueryClient } from "@tanstack/react-query";
import { ArrowUpToLine } from "lucide-react";
import { useMemo } from "react";
import { Link, useSearchParams } from "wouter";
import { post } from "../api/client";
import { readAgain } from "../api/read-again";
import type { Assistant, Json } from "../api/types";
import { ChangeList } from "../compare/change-list";
import { diff } from "../compare/diff";
import { triedPath } from "../compare/tried";
import { Age } from "../parts/age";
import { CopyCall } from "../parts/copy-call";
import { Problem } from "../parts/problem";
import { mostVersions, useAllVersions, type Version } from "./assistants";

/** The versions of an assistant: how any two differ, and which one counts. The address names the two. */
export function Versions({ assistant }: { assistant: Assistant }) {
  const id = assistant.assistant_id;
  const path = `/assistants/${id}/versions`;
  const queries = useQueryClient();
  const [params, setParams] = useSearchParams();
  const versions = useAllVersions(assistant);
  const latest = useMutation({
    mutationFn: (version: number) => post<Assistant>(`/assistants/${id}/latest`, { version }),
    onSettled: () => readAgain(queries, ["assistants"], ["versions", id], ["schemas", id]),
  });
  const list = versions.data ?? [];
  const find = (name: string) => list.find((v) => v.version === Number(params.get(name)));
  const current = list.find((v) => v.version === assistant.version);
  const to = find("to") ?? current ?? list[0];
  const from = find("from") ?? list.find((v) => to && v.version < to.version) ?? list.find((v) => v !== to);
  const set = (name: string, version: number) =>
    setParams(
      (old) => {
        old.set(name, String(version));
        return old;
      },
      { replace: true },
    );
  return (
    <section aria-label="Versions">
      <h2 className="bar">
        Versions <CopyCall of={{ method: "POST", path, body: { limit: mostVersions } }} what="versions" />
      </h2>
      <Problem error={versions.error ?? latest.error} />
      {list.length === 1 && <p className="quiet">There is one version. A change of the assistant makes another.</p>}
      {from && to && (
        <>
          <ol className="runs versions">
            {list.map((v) => (
              <li key={v.version} data-version={v.version}>
                <b className="numbers">{v.version}</b>
                <span>{v.name}</span>
                {v.version === assistant.version && <span className="tag">latest</span>}
                <Age of={v.created_at} />
                {v.version !== assistant.version && (
                  <Link href={triedPath(`${id}@${v.version}`, id)} className="quiet">
                    try beside the latest
                  </Link>
                )}
                {v.version !== assistant.version && (
                  <button type="button" className="plain" disabled={latest.isPending} onClick={() => latest.mutate(v.version)}>
                    <ArrowUpToLine size={12} aria-hidden /> Make {v.version} the latest
                  </button>
                )}
              </li>
            ))}
          </ol>
          <div className="bar">
            <Choice label="From" value={from.version} list={list} onChange={(v) => set("from", v)} />
            <Choice label="to" value={to.version} list={list} onChange={(v) => set("to", v)} />
          </div>
          <Difference from={from} to={to} />
        </>
      )}
    </section>
  );
}

function Choice({ label, value, list, onChange }: { label: string; value: number; list: Version[]; onChange: (version: number) => void }) {
  return (
    <label className="bar">
      {label}
      <select value={value} onChange={(e) => onChange(Number(e.target.value))}>
        {list.map((v) => (
          <option key={v.version} value={v.version}>
            version {v.version}
          </option>
        ))}
      </select>
    </label>
  );
}

function Difference({ from, to }: { from: Version; to: Version }) {
  const d = useMemo(() => diff(settings(from), settings(to)), [from, to]);
  return <ChangeList diff={d} nothing="These versions have the same settings." />;
}

/** What a version sets. The rest is its number and time, and what all versions share. */
const settings = (v: Version): Json => ({ graph_id: v.graph_id, name: v.name, description: v.description ?? null, config: v.config ?? {}, context: v.context ?? {}, metadata: v.metadata ?? {} });
