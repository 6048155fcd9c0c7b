import { useQuery } from "@tanstack/react-query";
import { LoaderCircle, Wrench, X } from "lucide-react";
import { useState } from "react";
import { useParams } from "wouter";
import { get } from "../api/client";
import type { Json, Message } from "../api/types";
import { JsonView } from "../parts/json";
import { Markdown } from "./markdown";
import { callsOf, kindOf, textOf, type Call } from "./message";

/** The same element for all calls: a long conversation has thousands, and each frame of scrolling draws some. */
const wrench = <Wrench size={14} aria-hidden />;

/** A call of a tool with its result, and what a subagent said in it. */
export function ToolCallView({ call, result, nested, run }: { call: Call; result?: Message; nested?: readonly Message[]; run?: string }) {
  const [open, setOpen] = useState(false);
  const failed = result?.status === "error";
  const brief = call.args.length > 80 ? `${call.args.slice(0, 80)}…` : call.args;
  return (
    <details className={`call${failed ? " failed" : ""}`} data-call={call.name} open={open} onToggle={(e) => setOpen((e.target as HTMLDetailsElement).open)}>
      <summary>
        {wrench}
        <b>{call.name}</b>
        <code className="brief">{brief}</code>
        {!result && <LoaderCircle size={14} className="turning" aria-label="no result yet" />}
        {failed && <X size={14} aria-label="failed" />}
      </summary>
      {open && (
        <>
          <Arguments args={call.args} />
          {nested?.length ? (
            <section className="nested" aria-label={`In ${call.name}`}>
              {nested.map((m) => (
                <div key={m.id} className={`message ${kindOf(m)}`}>
                  <Markdown text={textOf(m)} />
                  {callsOf(m).map((c) => (
                    <code key={c.id} className="brief">
                      {c.name} {c.args}
                    </code>
                  ))}
                </div>
              ))}
            </section>
          ) : (
            call.name === "task" && <Steps call={call.id} run={run} running={!result} />
          )}
          {result && <Result text={textOf(result)} />}
        </>
      )}
    </details>
  );
}

interface Step {
  seq: number;
  content: { task_id?: string; text?: string; tool_name?: string; kind?: string; tool_calls?: { name: string; args: Json }[] };
}

/** What a subagent of DeerFlow's agent said and did, as the log of its thread has it. */
function Steps({ call, run, running }: { call: string; run?: string; running: boolean }) {
  const { id } = useParams<{ id?: string }>();
  const path = `/threads/${id}${run ? `/runs/${run}` : ""}/events?event_types=subagent.step&limit=1000`;
  const { data } = useQuery({ queryKey: ["steps", path, running], enabled: id !== undefined, refetchInterval: running ? 1000 : false, queryFn: ({ signal }) => get<{ data: Step[] }>(path, signal) });
  const steps = data?.data.filter((s) => s.content.task_id === call) ?? [];
  if (steps.length === 0) return null;
  return (
    <section className="nested" aria-label="In task">
      {steps.map(({ seq, content }) => (
        <div key={seq} className={`message ${content.kind === "tool" ? "tool" : "ai"}`}>
          {content.kind === "tool" ? <Result text={content.text ?? ""} /> : <Markdown text={content.text ?? ""} />}
          {content.tool_calls?.map((c, i) => (
            <code key={i} className="brief">
              {c.name} {JSON.stringify(c.args)}
            </code>
          ))}
        </div>
      ))}
    </section>
  );
}

function Arguments({ args }: { args: string }) {
  const value = parsed(args);
  return value === undefined ? <pre className="result">{args}</pre> : <JsonView value={value} open={2} />;
}

function Result({ text }: { text: string }) {
  const value = /^\s*[[{]/.test(text) ? parsed(text) : undefined;
  return value === undefined ? <pre className="result">{text}</pre> : <JsonView value={value} open={2} />;
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
