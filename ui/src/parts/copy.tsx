import { Check, Copy } from "lucide-react";
import { useState } from "react";

/** Copies a text, or what a function makes when it is pressed, if that takes long. */
export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      className="icon"
      aria-label={label}
      title={label}
      onClick={() => void navigator.clipboard?.writeText(typeof text === "string" ? text : text()).then(() => (setDone(true), setTimeout(() => setDone(false), 1500)))}
    >
      {done ? <Check size={14} /> : <Copy size={14} />}
    </button>
  );
}

/** An ID, shortened to the end that differs, with the whole of it to copy. */
export function ID({ id }: { id: string }) {
  return (
    <span className="id" title={id}>
      <code>{id.length > 12 ? `…${id.slice(-8)}` : id}</code>
      <CopyButton text={id} label={`Copy ${id}`} />
    </span>
  );
}
