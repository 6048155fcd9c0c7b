import { useMutation } from "@tanstack/react-query";
import { GitFork, Save } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { post } from "../api/client";
import type { Json, State } from "../api/types";
import { CompareButton } from "../compare/chosen";
import { checkpointRef } from "../compare/refs";
import type { Checkpoint } from "../conversation/branches";
import { Age } from "../parts/age";
import { onArrows, reached } from "../parts/arrows";
import { ID } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { JsonView } from "../parts/json";
import { Problem } from "../parts/problem";
import { JsonField } from "../parts/schema-form";
import { Changes, useStateAt } from "./changes";
import { placesOf } from "./lanes";
import { RunFrom, type Beginning } from "./run-from";

interface Props {
  thread: string;
  assistant: string | undefined; // that runs
  checkpoints: readonly Checkpoint[]; // newest first
  selected: string | null;
  busy: boolean;
  onSelect: (checkpoint: string | null) => void;
  onRun: (checkpoint: string, beginning: Beginning) => Promise<unknown>;
  onChanged: () => void;
}

/** The states of a thread: what each step left, how it differs from the one before, and what can be done from there. */
export function Inspector({ thread, assistant, checkpoints, selected, busy, onSelect, onRun, onChanged }: Props) {
  const at = selected ?? checkpoints[0]?.checkpoint_id ?? null;
  const index = checkpoints.findIndex((c) => c.checkpoint_id === at);
  const path = `/threads/${thread}/state/${at}?overlay=false`;
  const state = useStateAt(thread, at);
  const parent = checkpoints[index]?.parent_checkpoint_id ?? null;
  const [view, setView] = useState<"values" | "changes" | "edit">("values");
  const list = useRef<HTMLOListElement>(null);
  const places = useMemo(() => placesOf(checkpoints), [checkpoints]);
  useEffect(() => {
    // j and k may lead out of sight.
    list.current?.querySelector(".current")?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <div className="inspector">
      <ol className="steps" ref={list} aria-label="Checkpoints" tabIndex={0} onKeyDown={(e) => step(e, checkpoints, index, onSelect)}>
        {checkpoints.map((c) => (
          <li key={c.checkpoint_id} className={c.checkpoint_id === at ? "current" : ""} data-lane={places.get(c.checkpoint_id)!.lane}>
            <button type="button" className="link" tabIndex={-1} aria-current={c.checkpoint_id === at} onClick={() => onSelect(c.checkpoint_id)}>
              {places.get(c.checkpoint_id)!.lane > 0 && <span className="lane" style={{ width: 12 * Math.min(places.get(c.checkpoint_id)!.lane, 8) }} />}
              <span className="numbers">{c.step}</span> {c.source}
              {places.get(c.checkpoint_id)!.lane > 0 && <span className="hidden">, branch {places.get(c.checkpoint_id)!.lane}</span>}
              {places.get(c.checkpoint_id)!.fork && <GitFork size={12} aria-label="branches begin here" />}
              <Age of={c.created_at} />
            </button>
          </li>
        ))}
      </ol>
      {at && (
        <section aria-label="State">
          <header className="bar">
            <ID id={at} />
            <span className="tabs" role="tablist" aria-label="View" onKeyDown={onArrows}>
              {(["values", "changes", "edit"] as const).map((v) => (
                <button key={v} type="button" role="tab" aria-selected={view === v} tabIndex={reached(view === v)} className="link" onClick={() => setView(v)}>
                  {v}
                </button>
              ))}
            </span>
            <CompareButton of={checkpointRef(thread, at)} />
            <CopyCall of={{ method: "GET", path }} what="this state" />
          </header>
          <Problem error={state.error} />
          {state.data && (
            <>
              {state.data.next.length > 0 && <p className="quiet">Next: {state.data.next.join(", ")}</p>}
              {view === "values" && <JsonView value={state.data.values} open={1} />}
              {view === "changes" && <Changes thread={thread} parent={parent} values={state.data.values} />}
              {view === "edit" && <Edit thread={thread} state={state.data} onChanged={onChanged} />}
            </>
          )}
          <RunFrom assistant={assistant} busy={busy} onRun={(beginning) => onRun(at, beginning)} />
        </section>
      )}
    </div>
  );
}

function step(e: React.KeyboardEvent, checkpoints: readonly Checkpoint[], index: number, onSelect: (c: string) => void) {
  const to = e.key === "ArrowDown" || e.key === "j" ? index + 1 : e.key === "ArrowUp" || e.key === "k" ? index - 1 : -1;
  const c = checkpoints[to];
  if (!c) return;
  e.preventDefault();
  onSelect(c.checkpoint_id);
}

/** Writes to the state as if a node had, which makes a new checkpoint behind this one. */
function Edit({ thread, state, onChanged }: { thread: string; state: State; onChanged: () => void }) {
  const [values, setValues] = useState<Json>({});
  const [node, setNode] = useState("");
  const save = useMutation({
    mutationFn: () => post(`/threads/${thread}/state`, { values, as_node: node || undefined, checkpoint_id: state.checkpoint.checkpoint_id }),
    onSuccess: onChanged,
  });
  return (
    <form
      className="fields"
      onSubmit={(e) => {
        e.preventDefault();
        if (!save.isPending) save.mutate();
      }}
    >
      <p className="quiet">Written to the channels as a node would: messages are appended, or replaced when they have the same id.</p>
      <JsonField label="Values" value={values} onChange={setValues} />
      <label>
        <span>As node (optional)</span>
        <input value={node} onChange={(e) => setNode(e.target.value)} />
      </label>
      <Problem error={save.error} />
      <button type="submit" disabled={save.isPending}>
        <Save size={14} aria-hidden /> Write
      </button>
    </form>
  );
}
