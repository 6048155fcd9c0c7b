import { Check, Copy, X } from "lucide-react";
import { useCopy } from "./copied";

/** Copies a text, or what a function makes when it is pressed, if that takes long. */
export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [copy, said] = useCopy();
  return (
    <>
      <button type="button" className="icon" aria-label={label} title={label} onClick={() => copy(typeof text === "string" ? text : text())}>
        {said === "" ? <Copy size={14} /> : said === "Copied" ? <Check size={14} /> : <X size={14} />}
      </button>
      {said && (
        <span role="status" className={said === "Could not copy" ? "quiet" : "hidden"}>
          {said}
        </span>
      )}
    </>
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
