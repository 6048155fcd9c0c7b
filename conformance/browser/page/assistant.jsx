// A chat on assistant-ui's LangGraph adapter with its default stream modes (messages, updates, custom): the list on the screen is what the
// adapter makes of `updates`. The address says which server, graph and thread, as for app.jsx.
import { createRoot } from "react-dom/client";
import { ActionBarPrimitive, AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive, useAuiState } from "@assistant-ui/react";
import { unstable_createLangGraphStream, useLangGraphRuntime } from "@assistant-ui/react-langgraph";
import { Client } from "@langchain/langgraph-sdk";

const address = new URLSearchParams(location.search);
const assistantId = address.get("assistant") ?? "agent";
const marked = (url, init) => {
  url.searchParams.set("markers", "attached");
  return init;
};
const client = new Client({ apiUrl: address.get("api") ?? "http://127.0.0.1:2024", onRequest: marked });
const stream = unstable_createLangGraphStream({ client, assistantId });

const entry = (id) => ({ status: "regular", remoteId: id, externalId: id });
const threads = {
  list: async () => ({ threads: address.get("thread") ? [entry(address.get("thread"))] : [] }),
  fetch: async (id) => entry(id),
  initialize: async () => {
    const { thread_id } = await client.threads.create();
    const url = new URL(location);
    url.searchParams.set("thread", thread_id);
    window.history.replaceState({}, "", url);
    return entry(thread_id);
  },
  generateTitle: async () => new ReadableStream({ start: (controller) => controller.close() }),
  rename: async () => {}, archive: async () => {}, unarchive: async () => {}, delete: async () => {},
};

// As assistant-ui documents it: the checkpoint whose messages are those before the one that is edited or made again.
async function getCheckpointId(threadId, parents) {
  for (const state of await client.threads.getHistory(threadId, { limit: 200 })) {
    const messages = state.values.messages ?? [];
    if (messages.length === parents.length && parents.every((message, i) => message.id && message.id === messages[i].id)) return state.checkpoint.checkpoint_id;
  }
  return null;
}

function Edit() {
  return (
    <ComposerPrimitive.Root>
      <ComposerPrimitive.Input name="draft" aria-label="Edited message" />
      <ComposerPrimitive.Send>Save</ComposerPrimitive.Send>
    </ComposerPrimitive.Root>
  );
}

function Message() {
  const role = useAuiState((s) => s.message.role);
  const id = useAuiState((s) => s.message.id);
  const editing = useAuiState((s) => s.composer.isEditing);
  const kind = { user: "human", assistant: "ai" }[role] ?? role;
  return (
    <MessagePrimitive.Root asChild>
      <li data-kind={kind} data-id={id}>
        <span className="text"><MessagePrimitive.Parts components={{ Text: ({ text }) => text }} /></span>
        {editing ? <Edit /> : (
          <ActionBarPrimitive.Root>
            {kind === "human" && <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>}
            {kind === "ai" && <ActionBarPrimitive.Reload>Again</ActionBarPrimitive.Reload>}
          </ActionBarPrimitive.Root>
        )}
      </li>
    </MessagePrimitive.Root>
  );
}

function Thread() {
  const state = useAuiState((s) => (s.thread.isLoading ? "loading" : s.thread.isRunning ? "running" : "idle"));
  return (
    <ThreadPrimitive.Root>
      <span id="status" data-status={state}>{state}</span>
      <ol id="messages"><ThreadPrimitive.Messages components={{ Message }} /></ol>
      <ComposerPrimitive.Root id="composer">
        <ComposerPrimitive.Input aria-label="Message" />
        <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  );
}

function App() {
  const runtime = useLangGraphRuntime({
    stream,
    unstable_threadListAdapter: threads,
    initialThreadId: address.get("thread") ?? undefined,
    load: async (id) => ({ messages: (await client.threads.getState(id)).values.messages ?? [] }),
    getCheckpointId,
  });
  return <AssistantRuntimeProvider runtime={runtime}><Thread /></AssistantRuntimeProvider>;
}

createRoot(document.getElementById("root")).render(<App />);
