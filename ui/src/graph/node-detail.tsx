import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { Link } from "wouter";
import { get } from "../api/client";
import { useOwn } from "../api/server";
import { CopyButton } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { Problem } from "../parts/problem";
import { NodeRuns } from "./node-runs";

interface NodePlace {
  id: string;
  function: string;
  file: string;
  line: number;
}

interface Props {
  assistant: string;
  graph: string;
  node: string; // as the drawing has it
  thread?: string; // whose runs are shown; undefined: those of all threads
  onClose: () => void;
}

/** Where the code of a node is, and what its last runs did. */
export function NodeDetail({ assistant, graph, node, thread, onClose }: Props) {
  const own = useOwn() === true;
  const path = `/understudy/assistants/${assistant}/nodes`;
  const { data, error } = useQuery({ queryKey: ["places", assistant], enabled: own, staleTime: 60_000, queryFn: ({ signal }) => get<{ nodes: NodePlace[] }>(path, signal) });
  const place = data?.nodes.find((n) => n.id === node);
  const at = place?.file ? `${place.file}:${place.line}` : "";
  const close = () => {
    onClose();
    document.querySelector<SVGElement>(`.graph [data-node="${CSS.escape(node)}"]`)?.focus();
  };
  return (
    <section className="card node-detail" aria-label={`Node ${node}`} onKeyDown={(e) => e.key === "Escape" && close()}>
      <header className="bar">
        <h2 className="grow">{node}</h2>
        {own && <CopyCall of={{ method: "GET", path }} what="the places of nodes" />}
        <button type="button" className="icon" aria-label="Close" title="Close (Esc)" onClick={close}>
          <X size={14} />
        </button>
      </header>
      <Problem error={error} />
      {at && (
        <p className="bar">
          <code className="place">{at}</code>
          <CopyButton text={at} label="Copy the place" />
        </p>
      )}
      {place?.function && (
        <p className="quiet">
          {at ? "Function" : "Code of a package: function"} <code className="place">{place.function}</code>
        </p>
      )}
      {own && data && !place?.function && <p className="quiet">The server does not know where its code is.</p>}
      {own && <NodeRuns key={node} graph={graph} node={node} thread={thread} />}
      <Link href={`/runs?graph=${encodeURIComponent(graph)}`}>Runs of this graph</Link>
    </section>
  );
}
