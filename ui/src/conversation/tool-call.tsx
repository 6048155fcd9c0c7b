import { LoaderCircle, Wrench, X } from "lucide-react";
import { useState } from "react";
import type { Message } from "../api/types";
import { Markdown } from "./markdown";
import { callsOf, kindOf, textOf, type Call } from "./message";
import { Steps } from "./steps";
import { Arguments, Result } from "./tool-result";

/** The same element for all calls: a long conversation has thousands, and each frame of scrolling draws some. */
const wrench = <Wrench size={14} aria-hidden />;

/** A call of a tool with its result, and what a subagent said in it. */
export function ToolCallView({ thread, call, result, nested, run }: { thread: string; call: Call; result?: Message; nested?: readonly Message[]; run?: string }) {
  const [open, setOpen] = useState(false);
  const toggle = () => setOpen(!open);
  const failed = result?.status === "error";
  const brief = call.args.length > 80 ? `${call.args.slice(0, 80)}…` : call.args;
  return (
    <div className={`call${failed ? " failed" : ""}${open ? " open" : ""}`} data-call={call.name}>
      {/* Not details, whose own tree of elements is made for each call that is scrolled to. */}
      <div className="head" role="button" tabIndex={0} aria-expanded={open} onClick={toggle} onKeyDown={(e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), toggle())}>
        {wrench}
        <b>{call.name}</b>
        <code className="brief">{brief}</code>
        {!result && <LoaderCircle size={14} className="turning" aria-label="no result yet" />}
        {failed && <X size={14} aria-label="failed" />}
      </div>
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
            call.name === "task" && <Steps thread={thread} call={call.id} run={run} running={!result} />
          )}
          {result && <Result text={textOf(result)} />}
        </>
      )}
    </div>
  );
}
