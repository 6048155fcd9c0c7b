import { useState } from "react";

const plain = (content) => (typeof content === "string" ? content : (content ?? []).filter((block) => block.type === "text").map((block) => block.text).join(""));

// One entry of a conversation. Where a summary stands a message has a `summary_marker`: one of its own, or the next one carries it.
export function Message({ message, meta, busy, onEdit, onRegenerate, onBranch }) {
  const marker = message.additional_kwargs?.summary_marker;
  const card = marker && (
    <li data-kind="marker" data-id={message.id}>
      <details>
        <summary>{marker.replaced_count} earlier messages were summarized for the model</summary>
        {marker.summary}
      </details>
    </li>
  );
  if (message.id?.startsWith("summary-marker-")) return card;
  const before = meta?.firstSeenState?.parent_checkpoint ?? undefined;
  return (<>
    {card}
    <li data-kind={message.type} data-id={message.id}>
      <span className="text">{plain(message.content)}</span>
      {message.tool_calls?.map((call) => <code key={call.id} data-call={call.name}>{call.name}({JSON.stringify(call.args)})</code>)}
      {!busy && message.type === "human" && before && <Edit text={plain(message.content)} onSave={(text) => onEdit(before, text)} />}
      {!busy && message.type === "ai" && before && <button onClick={() => onRegenerate(before)}>Again</button>}
      <Branches branch={meta?.branch} options={meta?.branchOptions} onBranch={onBranch} />
    </li>
  </>);
}

function Edit({ text, onSave }) {
  const [draft, setDraft] = useState(null);
  if (draft === null) return <button onClick={() => setDraft(text)}>Edit</button>;
  return (
    <form onSubmit={(e) => { e.preventDefault(); setDraft(null); onSave(draft); }}>
      <input name="draft" aria-label="Edited message" value={draft} onChange={(e) => setDraft(e.target.value)} />
      <button>Save</button>
    </form>
  );
}

function Branches({ branch, options, onBranch }) {
  if (!branch || !options) return null;
  const at = options.indexOf(branch);
  return (
    <nav>
      <button aria-label="Previous branch" disabled={at < 1} onClick={() => onBranch(options[at - 1])}>‹</button>
      <span className="branch">{at + 1} / {options.length}</span>
      <button aria-label="Next branch" disabled={at === options.length - 1} onClick={() => onBranch(options[at + 1])}>›</button>
    </nav>
  );
}
