import { ArrowDown, ArrowUpToLine } from "lucide-react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import type { Branch } from "./branches";
import { MessageView, type MessageActions } from "./message-view";
import type { Conversation, Entry } from "./reducer";
import { Marker } from "./marker";

interface Props {
  thread: string;
  entries: Entry[];
  nested: Conversation["nested"];
  older: boolean;
  onOlder: () => Promise<void>;
  onAll: () => Promise<void>; // loads the thread to its beginning
  busy: boolean;
  branches: ReadonlyMap<string, Branch>;
  actions: MessageActions;
  at: string | null; // the message to show, as isAt has it
}

/**
 * Whether an entry shows the message of an ID, or of a seq, as older links have it: as itself, or as the result of a call. Behind a proxy the search and the
 * record count differently, and IDs are the same.
 */
function isAt(e: Entry, at: string | null): boolean {
  if (at === null || e.kind !== "message" || !e.row) return false;
  if (e.message.id === at || String(e.row.seq) === at) return true;
  return e.message.tool_calls?.some((call) => call.id && e.results.get(call.id)?.id === at) ?? false;
}

/** How near to the end, in pixels, a reader still follows. */
const near = 80;

/** How near to the beginning, in heights of the view, older messages are read for who scrolls up: they come before they are seen, so that a frame draws few of them. */
const ahead = 4;

/** The same in pixels for who follows the end: opening a thread reads one page of it. */
const soon = 600;

/** The conversation. It stays at the end until its reader scrolls up; what arrives meanwhile is counted. Only what is visible is in the document. */
export function Transcript({ thread, entries, nested, older, onOlder, onAll, busy, branches, actions, at: target }: Props) {
  const list = useRef<VirtualizerHandle>(null);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const seen = useRef({ top: 0, height: 0 });
  const [unread, setUnread] = useState(0);
  const [loading, setLoading] = useState(false);
  const jumping = useRef(false); // scrolling to the beginning: the reader did not choose the positions on the way
  const [jumps, setJumps] = useState(0); // to the beginning
  const first = useRef<string | undefined>(undefined);
  const length = useRef(0);

  // Older rows come before those that are seen, which must stay where they are.
  const shift = first.current !== undefined && entries.length > length.current && entries[0]?.key !== first.current;
  useEffect(() => {
    const added = shift ? 0 : entries.length - length.current;
    if (added > 0 && !follows.current) setUnread((n) => n + added);
    first.current = entries[0]?.key;
    length.current = entries.length;
  }, [entries, shift]);

  const toEnd = () => {
    follows.current = true;
    setUnread(0);
    box.current?.scrollTo({ top: box.current.scrollHeight });
  };
  useLayoutEffect(() => {
    if (follows.current) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [entries, busy]);
  // Heights are measured after the first drawing, and change while pictures load and blocks unfold.
  useEffect(() => {
    const content = box.current?.firstElementChild;
    if (!content) return;
    const observer = new ResizeObserver(() => follows.current && box.current?.scrollTo({ top: box.current.scrollHeight }));
    observer.observe(content);
    return () => observer.disconnect();
  }, []);

  const toBeginning = async () => {
    follows.current = false;
    setLoading(true);
    await onAll().finally(() => setLoading(false));
    setJumps((n) => n + 1);
  };
  useEffect(() => {
    if (jumps === 0) return;
    follows.current = false;
    jumping.current = true;
    list.current?.scrollToIndex(0);
  }, [jumps]);

  // A message that a search has found: older rows are loaded until it is there.
  const shown = useRef<string | null>(null);
  useEffect(() => {
    if (target === null || target === shown.current || entries.length === 0) return;
    const index = entries.findIndex((e) => isAt(e, target));
    follows.current = false;
    if (index >= 0) {
      shown.current = target;
      list.current?.scrollToIndex(index, { align: "center" });
    } else if (older && !loading) {
      setLoading(true);
      void onAll().finally(() => setLoading(false));
    }
  }, [entries, loading, older, onAll, target]);

  const onScroll = async (offset: number) => {
    const at = box.current;
    if (!at) return;
    if (jumping.current) {
      jumping.current = at.scrollTop > near;
      seen.current = { top: at.scrollTop, height: at.scrollHeight };
      return;
    }
    // What grows moves the end away; only who scrolls up stops following.
    const { top, height } = seen.current;
    if (at.scrollHeight - at.scrollTop - at.clientHeight < near) follows.current = true;
    else if (at.scrollTop < top && at.scrollHeight >= height) follows.current = false;
    seen.current = { top: at.scrollTop, height: at.scrollHeight };
    if (follows.current) setUnread(0);
    if (offset < (follows.current ? soon : ahead * at.clientHeight) && older && !loading) {
      setLoading(true);
      await onOlder().finally(() => setLoading(false));
    }
  };

  const lost = target !== null && !older && !loading && !busy && entries.length > 0 && !entries.some((e) => isAt(e, target));

  return (
    <div className="transcript">
      {lost && (
        <p className="notice" role="status">
          The message that was found is not in this conversation any more: it was replaced, or is on a branch that was left.
        </p>
      )}
      <div className="messages" ref={box} tabIndex={0} role="log" aria-label="Conversation" aria-live="off">
        <div>
          <Virtualizer ref={list} shift={shift} scrollRef={box} onScroll={(offset) => void onScroll(offset)} data={entries}>
            {(e) =>
              e.kind === "marker" ? (
                <Marker key={e.key} marker={e.marker} />
              ) : (
                <MessageView key={e.key} thread={thread} entry={e} nested={nested} branch={branches.get(e.key)} busy={busy} actions={actions} found={isAt(e, target)} />
              )
            }
          </Virtualizer>
        </div>
      </div>
      {(older || entries.length > 60) && (
        <button type="button" className="icon beginning" aria-label="Beginning" title="To the beginning" disabled={loading} onClick={() => void toBeginning()}>
          <ArrowUpToLine size={16} />
        </button>
      )}
      {unread > 0 && (
        <button type="button" className="pill" onClick={toEnd}>
          <ArrowDown size={14} aria-hidden /> {unread} new
        </button>
      )}
    </div>
  );
}
