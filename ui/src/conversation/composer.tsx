import { ArrowUp, Braces, FastForward, MessageSquare, Square } from "lucide-react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import type { Json, Schema } from "../api/types";
import { draftOf, joined, keepDraft, whenShown } from "./draft";
import { focusPage } from "../parts/keep-focus";
import { SchemaForm } from "../parts/schema-form";
import { initial } from "../parts/schema";

interface Props {
  draft: string; // under which what was typed is kept
  input: Schema | null; // of the graph
  chats: boolean; // the input has messages
  busy: boolean;
  disabled?: boolean;
  placeholder: string;
  onSay: (text: string, now: boolean) => Promise<void>; // now: what runs is interrupted
  onInput: (input: Json, now: boolean) => Promise<void>;
  onStop: () => Promise<void>;
}

/** Where input is made: words for graphs that talk, else the fields of their input. */
export function Composer({ draft, input, chats, busy, disabled, placeholder, onSay, onInput, onStop }: Props) {
  const [mode, setMode] = useState<"words" | "fields">(chats ? "words" : "fields");
  const [text, setText] = useState(() => draftOf(draft));
  const [fields, setFields] = useState<Json>(() => initial(input));
  const [sending, setSending] = useState(false);
  const [stopping, setStopping] = useState(false);
  useEffect(
    () =>
      whenShown(() => {
        const before = draftOf(draft);
        setText((now) => joined(before, now));
      }),
    [draft],
  );
  useEffect(() => setStopping(false), [busy]);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => setMode(chats ? "words" : "fields"), [chats]);
  useEffect(() => setFields(initial(input)), [input]);

  // A page begins here, unless a person is elsewhere, as among the assistants, each of which has a composer of its own.
  useLayoutEffect(() => {
    if (!document.activeElement || document.activeElement === document.body) area.current?.focus();
  }, [mode]);

  const submit = async (now = false) => {
    if (sending || disabled) return;
    setSending(true);
    try {
      if (mode === "fields") await onInput(fields, now);
      else if (text.trim()) {
        setText("");
        await onSay(text, now).catch((error: unknown) => {
          setText(text);
          throw error;
        });
        keepDraft(draft, area.current?.value ?? ""); // not before: what is refused for want of credentials is typed once
      }
    } catch {
      // the page shows it
    } finally {
      setSending(false);
      area.current?.focus();
    }
  };

  return (
    <form
      className="composer"
      onKeyDown={(e) => e.key === "Escape" && !busy && focusPage()}
      onSubmit={(e) => {
        e.preventDefault();
        void submit();
      }}
    >
      {mode === "words" ? (
        <textarea
          ref={area}
          aria-label="Message"
          placeholder={placeholder}
          value={text}
          rows={Math.min(10, text.split("\n").length)}
          onChange={(e) => (setText(e.target.value), keepDraft(draft, e.target.value))}
          onKeyDown={(e) => {
            if (e.key === "Enter" && !e.shiftKey && !e.nativeEvent.isComposing) {
              e.preventDefault();
              void submit();
            }
          }}
        />
      ) : (
        <SchemaForm schema={input} value={fields} onChange={setFields} />
      )}
      <div className="buttons">
        {chats && (
          <button type="button" className="icon" aria-label={mode === "words" ? "Whole input" : "Words only"} title={mode === "words" ? "Whole input" : "Words only"} onClick={() => setMode(mode === "words" ? "fields" : "words")}>
            {mode === "words" ? <Braces size={16} /> : <MessageSquare size={16} />}
          </button>
        )}
        {busy && (
          <button type="button" className="stop" aria-label="Stop" title="Stop (Esc)" aria-disabled={stopping} onClick={() => (setStopping(true), void onStop().finally(() => setStopping(false)))}>
            <Square size={14} /> {stopping ? "Stopping…" : "Stop"}
          </button>
        )}
        {busy && (
          <button type="button" className="plain" aria-label="Send now" title="Send now: interrupts the run" disabled={disabled || sending || (mode === "words" && !text.trim())} onClick={() => void submit(true)}>
            <FastForward size={16} />
          </button>
        )}
        <button type="submit" aria-label="Send" title={busy ? "Send: waits for the run" : "Send (Enter)"} disabled={disabled || sending || (mode === "words" && !text.trim())}>
          <ArrowUp size={16} /> Send
        </button>
      </div>
    </form>
  );
}
