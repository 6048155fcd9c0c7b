import { Bot, ChevronLeft, ChevronRight, GitFork, History, Paperclip, Pencil, RotateCcw, Settings2, User, Wrench } from "lucide-react";
import { memo, useRef, useState } from "react";
import type { Block, Message } from "../api/types";
import { CopyButton } from "../parts/copy";
import { count } from "../parts/format";
import type { Branch } from "./branches";
import { isInline, Markdown } from "./markdown";
import { attachmentsOf, callsOf, kindOf, reasoningOf, textOf, type Kind } from "./message";
import type { Conversation, Entry } from "./reducer";
import { ToolCallView } from "./tool-call";

export interface MessageActions {
  edit: (entry: MessageEntry, text: string) => void;
  regenerate: (entry: MessageEntry) => void;
  inspect: (checkpoint: string) => void;
  choose: (checkpoint: string) => void;
}

export type MessageEntry = Extract<Entry, { kind: "message" }>;

const faces: Record<Kind, [typeof User, string]> = {
  human: [User, "You"],
  ai: [Bot, "Assistant"],
  tool: [Wrench, "Tool"],
  system: [Settings2, "System"],
};

interface Props {
  thread: string;
  found?: boolean; // a search has led here
  entry: MessageEntry;
  nested: Conversation["nested"];
  branch?: Branch;
  busy: boolean;
  actions: MessageActions;
}

export const MessageView = memo(function MessageView({ thread, entry, nested, branch, busy, actions, found = false }: Props) {
  const { message, row, results } = entry;
  const kind = kindOf(message);
  const [draft, setDraft] = useState<string | null>(null);
  const edit = useRef<HTMLButtonElement>(null);
  const leave = () => {
    setDraft(null);
    edit.current?.focus();
  };
  const [Face, name] = faces[kind];
  const text = textOf(message);
  const usage = message.usage_metadata;
  const checkpoint = row?.metadata.checkpoint_id;
  return (
    <article className={found ? `message ${kind} at` : `message ${kind}`} data-kind={kind} data-id={message.id} aria-label={name}>
      <header>
        <Face size={16} aria-hidden />
        <b>{message.name || name}</b>
        {row?.metadata.partial && <span className="tag">cut off{row.metadata.truncated ? ", longer than kept" : ""}</span>}
        {usage && (
          <span className="quiet numbers" title="tokens of this call">
            {count(usage.input_tokens)} in, {count(usage.output_tokens)} out
          </span>
        )}
        <span className={branch && branch.all.length > 1 ? "tools branched" : "tools"}>
          {branch && branch.all.length > 1 && <BranchSwitch branch={branch} choose={actions.choose} />}
          {text && <CopyButton text={text} label="Copy message" />}
          {row && kind === "human" && (
            <button ref={edit} type="button" className="icon" data-key="e" aria-label="Edit" title="Edit (e): begins a branch here" disabled={busy} onClick={() => setDraft(text)}>
              <Pencil size={14} />
            </button>
          )}
          {row && kind === "ai" && (
            <button type="button" className="icon" aria-label="Regenerate" title="Regenerate: begins a branch here" disabled={busy} onClick={() => actions.regenerate(entry)}>
              <RotateCcw size={14} />
            </button>
          )}
          {checkpoint && (
            <button type="button" className="icon" aria-label="State" title="State after this message" onClick={() => actions.inspect(checkpoint)}>
              <History size={14} />
            </button>
          )}
        </span>
      </header>
      {draft === null ? (
        <Content thread={thread} message={message} results={results} nested={nested} text={text} run={row?.run_id ?? undefined} />
      ) : (
        <form
          className="edit"
          onSubmit={(e) => {
            e.preventDefault();
            setDraft(null);
            actions.edit(entry, draft);
          }}
          onKeyDown={(e) => e.key === "Escape" && (e.stopPropagation(), leave())}
        >
          <textarea aria-label="Edited message" autoFocus value={draft} onChange={(e) => setDraft(e.target.value)} rows={Math.min(12, draft.split("\n").length + 1)} />
          <button type="submit">Send</button>
          <button type="button" className="plain" onClick={leave}>
            Cancel
          </button>
        </form>
      )}
    </article>
  );
});

/** What a message says, shows and calls. */
export function Content({ thread, message, results, nested, text, run }: { thread: string; message: Message; results: ReadonlyMap<string, Message>; nested: Conversation["nested"]; text: string; run?: string }) {
  const reasoning = reasoningOf(message);
  return (
    <>
      {reasoning && (
        <details className="reasoning">
          <summary>Reasoning</summary>
          <Markdown text={reasoning} />
        </details>
      )}
      {kindOf(message) === "tool" ? <ToolText text={text} /> : text && <Words text={text} />}
      {attachmentsOf(message).map((block, i) => (
        <Attachment key={i} block={block} />
      ))}
      {callsOf(message).map((call) => (
        <ToolCallView key={call.id} thread={thread} call={call} result={results.get(call.id)} nested={nested.get(call.id)} run={run} />
      ))}
    </>
  );
}

/** How many characters of a message are drawn before more are asked for. */
const most = 30_000;

function Words({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  if (text.length <= most || whole) return <Markdown text={text} />;
  return (
    <>
      <Markdown text={text.slice(0, most)} />
      <button type="button" className="link" onClick={() => setWhole(true)}>
        Show {count(text.length - most)} more characters
      </button>
    </>
  );
}

const ToolText = ({ text }: { text: string }) => <pre className="result">{text}</pre>;

/** Pictures that came with the message are shown; what is elsewhere is a link, because its server would learn of it. */
function Attachment({ block }: { block: Block }) {
  const nestedURL = block.image_url as string | { url?: string } | undefined;
  const data = typeof block.data === "string" ? `data:${String(block.mime_type ?? block.mimeType ?? "application/octet-stream")};base64,${block.data}` : undefined;
  const url = data ?? (typeof nestedURL === "string" ? nestedURL : nestedURL?.url) ?? (typeof block.url === "string" ? block.url : undefined);
  const name = String(block.filename ?? block.name ?? block.type);
  if (url && isInline(url)) return <img className="attachment" src={url} alt={name} />;
  return (
    <div className="attachment">
      <Paperclip size={14} aria-hidden />{" "}
      {url && /^(https?|data):/.test(url) ? (
        <a href={url} target="_blank" rel="noopener noreferrer" download={url.startsWith("data:") ? name : undefined}>
          {name}
        </a>
      ) : (
        name
      )}
    </div>
  );
}

function BranchSwitch({ branch, choose }: { branch: Branch; choose: (checkpoint: string) => void }) {
  const { at, all } = branch;
  return (
    <span className="branch" role="group" aria-label="Branch">
      <GitFork size={14} aria-hidden />
      <button type="button" className="icon" aria-label="Previous branch" disabled={at === 0} onClick={() => choose(all[at - 1]!)}>
        <ChevronLeft size={14} />
      </button>
      <span className="numbers">
        {at + 1} of {all.length}
      </span>
      <button type="button" className="icon" aria-label="Next branch" disabled={at === all.length - 1} onClick={() => choose(all[at + 1]!)}>
        <ChevronRight size={14} />
      </button>
    </span>
  );
}
