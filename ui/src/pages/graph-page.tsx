import { lazy, Suspense } from "react";
import { Link, useSearchParams } from "wouter";
import { GraphProblem } from "../graph/graph-problem";
import { NodeDetail } from "../graph/node-detail";
import { CopyCall } from "../parts/copy-call";
import { JsonView } from "../parts/json";
import { Problem } from "../parts/problem";
import type { Json } from "../api/types";
import { useAssistants, useSchemas, useStranded } from "./assistants";
import { Versions } from "./versions";

const Drawing = lazy(() => import("../graph/drawing"));

/** The assistants, and the graph and settings of one. */
export function GraphPage({ id }: { id?: string }) {
  const assistants = useAssistants();
  const assistant = assistants.data?.find((a) => a.assistant_id === id || a.graph_id === id) ?? assistants.data?.[0];
  const stranded = useStranded();
  const schemas = useSchemas(assistant?.assistant_id);
  const [params, setParams] = useSearchParams();
  const node = params.get("node");
  const choose = (id: string | null) => setParams((old) => (id === null ? old.delete("node") : old.set("node", id), old), { replace: true });
  return (
    <main className="page wide">
      <div className="bar">
        <h1>Graphs and assistants</h1>
        {assistant && <CopyCall of={{ method: "GET", path: `/assistants/${assistant.assistant_id}/graph?xray=true` }} what="the graph" />}
      </div>
      <Problem error={assistants.error} />
      <nav className="tabs" aria-label="Assistants">
        {assistants.data?.map((a) => (
          <Link key={a.assistant_id} href={`/graphs/${a.assistant_id}`} aria-current={a === assistant ? "page" : undefined}>
            {a.name}
          </Link>
        ))}
      </nav>
      {stranded.length > 0 && (
        <p className="quiet">
          Not on this server, because their graphs are not in langgraph.json: {stranded.map((a) => (a.name === a.graph_id ? a.name : `${a.name} (${a.graph_id})`)).join(", ")}.
        </p>
      )}
      {assistant && (
        <div className="columns">
          <section aria-label="Graph" onKeyDown={(e) => e.key === "Escape" && choose(null)}>
            <Suspense fallback={<p className="quiet">Drawing…</p>}>
              <Drawing assistant={assistant.assistant_id} selected={node ?? undefined} onSelect={(id) => choose(id === node ? null : id)} />
            </Suspense>
            {node && <NodeDetail assistant={assistant.assistant_id} graph={assistant.graph_id} node={node} onClose={() => choose(null)} />}
          </section>
          <section aria-label="Settings">
            <p>{assistant.description}</p>
            <p className="quiet">
              Graph {assistant.graph_id}, version {assistant.version}
            </p>
            <h2>Config</h2>
            <JsonView value={assistant.config ?? {}} />
            <h2>Context</h2>
            <JsonView value={assistant.context ?? {}} />
            <Versions key={assistant.assistant_id} assistant={assistant} />
            <h2>Schemas</h2>
            <GraphProblem error={schemas.error} />
            {schemas.data && <JsonView value={schemas.data as unknown as Json} />}
          </section>
        </div>
      )}
    </main>
  );
}
