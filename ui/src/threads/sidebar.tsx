import { Copy, MoreHorizontal, Pencil, Pin, PinOff, Plus, Rows3, Trash2 } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Link, useLocation, useRoute } from "wouter";
import { useOwn } from "../api/server";
import type { Thread } from "../api/types";
import { CompareButton } from "../compare/chosen";
import { threadRef } from "../compare/refs";
import { Age } from "../parts/age";
import { Menu } from "../parts/menu";
import { Empty, Problem } from "../parts/problem";
import { Splitter } from "../parts/splitter";
import { Status } from "../parts/status";
import { Found } from "./found";
import { isPinned, statusOf, titleOf, useThreadActions, useThreads, useTitle } from "./threads";

export function Sidebar() {
  const threads = useThreads();
  const what = useOwn() === false ? "Find threads" : "Find threads and messages";
  const [words, setWords] = useState("");
  const all = threads.data?.pages.flat() ?? [];
  const unique = [...new Map(all.map((t) => [t.thread_id, t])).values()]; // a thread that changes moves between pages
  const found = unique.filter((t) => titleOf(t).toLowerCase().includes(words.toLowerCase()) || t.thread_id.includes(words));
  const sorted = [...found.filter(isPinned), ...found.filter((t) => !isPinned(t))];
  return (
    <nav className="sidebar" aria-label="Threads">
      <div className="top">
        <input type="search" placeholder="Find threads" title={what} aria-label={what} data-key="/" value={words} onChange={(e) => setWords(e.target.value)} />
        <Link href="/threads" className="button plain" aria-label="All threads" title="All threads">
          <Rows3 size={16} />
        </Link>
        <Link href="/" className="button" aria-label="New thread" title="New thread (n)">
          <Plus size={16} />
        </Link>
      </div>
      <Problem error={threads.error} />
      <ul>
        {sorted.map((t) => (
          <Line key={t.thread_id} thread={t} />
        ))}
      </ul>
      {threads.isSuccess && sorted.length === 0 && <Empty>{words ? "No loaded thread has these words." : "No threads yet. Say something to begin one."}</Empty>}
      {threads.hasNextPage && (
        <button type="button" className="plain" disabled={threads.isFetchingNextPage} onClick={() => void threads.fetchNextPage()}>
          Older threads
        </button>
      )}
      <Splitter name="sidebar" label="Width of the threads" of="nav.sidebar" folds />
      {words && <Found words={words} nameOf={(id) => { const t = unique.find((known) => known.thread_id === id); return t ? titleOf(t) : `thread …${id.slice(-8)}`; }} />}
    </nav>
  );
}

function Line({ thread }: { thread: Thread }) {
  const title = useTitle(thread);
  const id = thread.thread_id;
  const [open, params] = useRoute("/t/:id");
  const [, navigate] = useLocation();
  const [naming, setNaming] = useState<string | null>(null);
  const more = useRef<HTMLButtonElement>(null);
  const named = useRef(false); // the field of the title is left: the focus returns
  useEffect(() => {
    if (naming === null && named.current) more.current?.focus();
    named.current = naming !== null;
  }, [naming]);
  const { change, remove, copy } = useThreadActions();
  const current = open && params.id === id;
  // The list may have been read again meanwhile: then this line is gone, and what is passed to mutate is not called.
  const leave = () => window.location.pathname.endsWith(`/t/${id}`) && navigate("/");
  if (naming !== null) {
    return (
      <li>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            change.mutate({ id, metadata: { title: naming.trim() || null } });
            setNaming(null);
          }}
        >
          <input autoFocus aria-label="Title" value={naming} onChange={(e) => setNaming(e.target.value)} onKeyDown={(e) => e.key === "Escape" && setNaming(null)} />
        </form>
      </li>
    );
  }
  return (
    <li className={current ? "current" : ""}>
      <Link href={`/t/${id}`} aria-current={current ? "page" : undefined}>
        <Status of={statusOf(thread)} />
        <span className="title">{title}</span>
        {isPinned(thread) && <Pin size={12} aria-label="pinned" />}
        <Age of={thread.updated_at} />
      </Link>
      <Menu label={`Actions for ${title}`} menu="Actions" icon={<MoreHorizontal size={14} />} className="icon more" button={more}>
        {(close) => (
          <>
            <button type="button" role="menuitem" onClick={() => setNaming(title)}>
              <Pencil size={14} /> Rename
            </button>
            <button type="button" role="menuitem" onClick={() => (change.mutate({ id, metadata: { pinned: isPinned(thread) ? null : true } }), close())}>
              {isPinned(thread) ? <PinOff size={14} /> : <Pin size={14} />} {isPinned(thread) ? "Unpin" : "Pin"}
            </button>
            <button type="button" role="menuitem" onClick={() => void copy.mutateAsync(id).then((t) => navigate(`/t/${t.thread_id}`), () => {})}>
              <Copy size={14} /> Copy
            </button>
            <CompareButton of={threadRef(id)} role="menuitem" />
            <button
              type="button"
              role="menuitem"
              className="danger"
              onClick={() => {
                close();
                if (confirm(`Delete “${title}” with its whole history?`)) void remove.mutateAsync(id).then(leave, () => {});
              }}
            >
              <Trash2 size={14} /> Delete
            </button>
          </>
        )}
      </Menu>
      <Problem error={change.error ?? remove.error ?? copy.error} />
    </li>
  );
}
