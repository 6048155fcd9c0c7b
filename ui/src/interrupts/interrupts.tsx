import { Check, MessageSquare, Pause, Pencil, X } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Interrupt, Json, JsonObject } from "../api/types";
import { Markdown } from "../conversation/markdown";
import { JsonView } from "../parts/json";
import { JsonField, SchemaForm } from "../parts/schema-form";
import { initial } from "../parts/schema";
import { command, reviewOf, type Action, type Answer, type Decision } from "./review";

interface Props {
  interrupts: Interrupt[];
  busy: boolean;
  onAnswer: (command: JsonObject) => Promise<unknown>;
}

/** The questions for which a thread waits. They are answered together, because one resumption answers all. */
export function Interrupts({ interrupts, busy, onAnswer }: Props) {
  const [answers, setAnswers] = useState<ReadonlyMap<number, Json>>(new Map());
  const [sending, setSending] = useState(false);
  const set = (i: number, value: Json | undefined) => {
    const next = new Map(answers);
    if (value === undefined) next.delete(i);
    else next.set(i, value);
    setAnswers(next);
  };
  const box = useRef<HTMLDivElement>(null);
  const pressed = useRef<HTMLElement | null>(null); // for an answer that was refused
  useEffect(() => {
    if (sending || !pressed.current) return;
    if (document.activeElement === box.current) pressed.current.focus(); // now that it is enabled again
    pressed.current = null;
  }, [sending]);
  const send = async (all: ReadonlyMap<number, Json>) => {
    const button = document.activeElement as HTMLElement | null;
    box.current?.focus({ preventScroll: true }); // what was pressed cannot have the focus while it is disabled
    setSending(true);
    try {
      await onAnswer(command(interrupts.map((q, i) => ({ id: q.id, value: all.get(i)! }))));
    } catch {
      pressed.current = button;
    } finally {
      setSending(false);
    }
  };
  const single = interrupts.length === 1;
  return (
    <div className="interrupts" ref={box} tabIndex={-1}>
      <h2>
        <Pause size={16} aria-hidden /> {single ? "The graph waits for an answer" : `The graph waits for ${interrupts.length} answers`}
      </h2>
      {interrupts.map((q, i) => (
        <Question
          key={q.id ?? i}
          interrupt={q}
          disabled={busy || sending}
          chosen={answers.get(i)}
          // The form of a single question stays, with what was typed, until the answer has arrived.
          onAnswer={(value) => (single && value !== undefined ? void send(new Map([[i, value]])) : set(i, value))}
        />
      ))}
      {!single && (
        <button type="button" disabled={busy || sending || answers.size < interrupts.length} onClick={() => void send(answers)}>
          Send {answers.size} of {interrupts.length} answers
        </button>
      )}
    </div>
  );
}

interface QuestionProps {
  interrupt: Interrupt;
  disabled: boolean;
  chosen: Json | undefined;
  onAnswer: (value: Json | undefined) => void;
}

function Question({ interrupt, disabled, chosen, onAnswer }: QuestionProps) {
  const review = useMemo(() => reviewOf(interrupt.value), [interrupt.value]);
  return (
    <>
      {chosen !== undefined && (
        <div className="question answered">
          <Check size={14} aria-hidden /> Answered
          <JsonView value={chosen} />
          <button type="button" className="plain" disabled={disabled} onClick={() => onAnswer(undefined)}>
            Change
          </button>
        </div>
      )}
      <div hidden={chosen !== undefined}>
        {review ? (
          <ReviewForm actions={review.actions} disabled={disabled} onDone={(answers) => onAnswer(review.resume(answers))} />
        ) : (
          <FreeForm interrupt={interrupt} disabled={disabled} onAnswer={onAnswer} />
        )}
      </div>
    </>
  );
}

/** The calls of an interrupt. The decision about a single one is the answer; of several, each can be changed until all are sent. */
function ReviewForm({ actions, disabled, onDone }: { actions: Action[]; disabled: boolean; onDone: (answers: Answer[]) => void }) {
  const [answers, setAnswers] = useState<ReadonlyMap<number, Answer>>(new Map());
  const send = useRef<HTMLButtonElement>(null);
  const complete = answers.size === actions.length;
  useEffect(() => {
    if (complete && document.activeElement === document.body) send.current?.focus(); // the button of the last decision is gone
  }, [complete]);
  const decide = (i: number, a: Answer | undefined) => {
    const next = new Map(answers);
    if (a) next.set(i, a);
    else next.delete(i);
    setAnswers(next);
  };
  if (actions.length === 1) return <ActionForm action={actions[0]!} disabled={disabled} onAnswer={(a) => a && onDone([a])} />;
  return (
    <>
      {actions.map((action, i) => (
        <ActionForm key={i} action={action} disabled={disabled} answered={answers.get(i)} onAnswer={(a) => decide(i, a)} />
      ))}
      <button ref={send} type="button" disabled={disabled || !complete} onClick={() => onDone(actions.map((_, n) => answers.get(n)!))}>
        Send {answers.size} of {actions.length} decisions
      </button>
    </>
  );
}

const labels: Record<Decision, [typeof Check, string]> = {
  approve: [Check, "Approve"],
  edit: [Pencil, "Edit"],
  respond: [MessageSquare, "Respond"],
  reject: [X, "Reject"],
};

function ActionForm({ action, disabled, answered, onAnswer }: { action: Action; disabled: boolean; answered?: Answer; onAnswer: (a: Answer | undefined) => void }) {
  const [mode, setMode] = useState<"edit" | "respond" | "reject" | null>(null);
  const [args, setArgs] = useState<Json>(action.args);
  const [text, setText] = useState("");
  const [back, setBack] = useState<Decision | null>(null); // what was chosen and left again, where the focus returns
  const change = useRef<HTMLButtonElement>(null);
  const decided = answered !== undefined;
  useEffect(() => {
    if (decided && document.activeElement === document.body) change.current?.focus();
  }, [decided]);
  if (answered) {
    return (
      <div className="question answered" data-action={action.name}>
        {action.name}: {labels[answered.decision][1].toLowerCase()}
        {answered.text && <q>{answered.text}</q>}
        {answered.decision === "edit" && <JsonView value={answered.args ?? {}} />}
        <button ref={change} type="button" className="plain" disabled={disabled} onClick={() => onAnswer(undefined)}>
          Change
        </button>
      </div>
    );
  }
  const choose = (d: Decision) => (d === "approve" ? onAnswer({ decision: d }) : setMode(d));
  return (
    <div className="question" data-action={action.name}>
      <h3>{action.name}</h3>
      {action.description && <Markdown text={action.description} />}
      {mode === "edit" ? <JsonField label="Arguments" autoFocus value={args} onChange={setArgs} /> : <JsonView value={action.args} open={2} />}
      {(mode === "respond" || mode === "reject") && (
        <label>
          <span>{mode === "respond" ? "Answer" : "Reason, which the model sees"}</span>
          <textarea autoFocus value={text} rows={2} onChange={(e) => setText(e.target.value)} />
        </label>
      )}
      <div className="buttons">
        {mode === null ? (
          action.allows.map((d) => {
            const [Shape, label] = labels[d];
            return (
              <button key={d} type="button" autoFocus={d === back} className={d === "approve" ? "" : "plain"} disabled={disabled} onClick={() => choose(d)}>
                <Shape size={14} aria-hidden /> {label}
              </button>
            );
          })
        ) : (
          <>
            <button type="button" disabled={disabled || (mode === "respond" && !text.trim())} onClick={() => onAnswer({ decision: mode, args: args as JsonObject, text: text.trim() })}>
              {mode === "edit" ? "Approve with these arguments" : labels[mode][1]}
            </button>
            <button type="button" className="plain" onClick={() => (setMode(null), setBack(mode))}>
              Back
            </button>
          </>
        )}
      </div>
    </div>
  );
}

/** Answers that a question itself proposes, for one button each. */
function proposals(value: Json): Json[] {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [];
  for (const key of ["answers", "options", "choices"]) {
    const list = value[key];
    if (Array.isArray(list)) return list.filter((v) => typeof v === "string").slice(0, 8);
  }
  return [];
}

/** Any other question: the words of a person, or JSON, or the fields of its response schema. */
function FreeForm({ interrupt, disabled, onAnswer }: { interrupt: Interrupt; disabled: boolean; onAnswer: (value: Json) => void }) {
  const schema = interrupt.response_schema ?? null;
  const [mode, setMode] = useState<"text" | "json">("text");
  const [text, setText] = useState("");
  const [json, setJSON] = useState<Json>(() => (schema ? initial(schema) : {}));
  const { value } = interrupt;
  return (
    <form
      className="question"
      onSubmit={(e) => {
        e.preventDefault();
        onAnswer(schema || mode === "json" ? json : text);
      }}
    >
      {typeof value === "string" ? <Markdown text={value} /> : <JsonView value={value} open={3} />}
      {proposals(value).length > 0 && (
        <div className="buttons">
          {proposals(value).map((p) => (
            <button key={String(p)} type="button" className="plain" disabled={disabled} onClick={() => onAnswer(p)}>
              {String(p)}
            </button>
          ))}
        </div>
      )}
      {schema ? (
        <SchemaForm schema={schema} value={json} onChange={setJSON} />
      ) : mode === "json" ? (
        <JsonField label="Answer (JSON)" value={json} onChange={setJSON} />
      ) : (
        <label>
          <span>Answer</span>
          <textarea value={text} rows={Math.min(8, text.split("\n").length)} onChange={(e) => setText(e.target.value)} />
        </label>
      )}
      <div className="buttons">
        <button type="submit" disabled={disabled || (!schema && mode === "text" && text === "")}>
          Answer
        </button>
        {!schema && (
          <button type="button" className="plain" onClick={() => setMode(mode === "text" ? "json" : "text")}>
            {mode === "text" ? "Answer with JSON" : "Answer with text"}
          </button>
        )}
      </div>
    </form>
  );
}
