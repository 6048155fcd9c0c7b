"""What a running graph emits, as events of the API."""
from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import orjson
from langchain_core.messages import BaseMessage, BaseMessageChunk
from langchain_core.messages.utils import message_chunk_to_message

from . import transformers
from .jsonenc import OPTIONS, _default, dumps, message_dict
from .release import VALUES_ASK

INTERRUPT = "__interrupt__"

# (event, namespace, JSON, checkpoint that must be committed first or "")
Emit = Callable[[str, str, bytes, str], None]

# Whether LangGraph streams calls of tools; older releases refuse the mode.
TOOLS = find_spec("langgraph.pregel._tools") is not None


def _spare_tokens() -> None:
    """Makes LangChain not call the handler of tool calls with each token, which it ignores: that costs a tenth of a token."""
    from langgraph.pregel import _tools

    handler = getattr(_tools, "StreamToolCallHandler", None)
    if isinstance(handler, type) and not any(name.startswith(("on_llm", "on_chat_model")) for name in vars(handler)):
        handler.ignore_llm = handler.ignore_chat_model = True


if TOOLS:
    _spare_tokens()

# A mode of its own, for event streaming: of each checkpoint its id, before the values that it has.
IDS = "checkpoint-ids"


class Shaper:
    """Of one run. `wanted` are modes as the API names them."""

    def __init__(self, wanted: set[str], emit: Emit, hold: bool, loaded: set[str], soon: Callable[[Callable], Any] | None) -> None:
        self._wanted = wanted
        self._emit = emit
        self._hold = hold
        self._loaded = loaded
        self._soon = soon
        # Values whose checkpoint is not known yet, by namespace: those of the root, and for checkpoint-ids all.
        self._held: dict[tuple[str, ...], bytes] = {}
        self._ids = IDS in wanted
        self._streaming = transformers.CHANNELS in wanted
        self._tuples = "messages-tuple" in wanted
        self._messages = "messages" in wanted and not self._tuples
        self._meta: tuple[Any, orjson.Fragment] | None = None
        self._whole: dict[str, Any] = {}  # accumulated chunks by message id
        self._known: set[str] = set()

    @staticmethod
    def modes(wanted: set[str], hold: bool) -> list[str]:
        """Stream modes to ask of LangGraph. Root checkpoints tell which commit a root `values` waits for."""
        out = {m for m in wanted if m not in ("events", "messages-tuple", IDS, transformers.CHANNELS)}
        if not TOOLS:
            out.discard("tools")
        if "messages-tuple" in wanted:
            out.add("messages")
        if not VALUES_ASK and "values" in wanted:
            out.add("updates")
        if hold and "values" in wanted or IDS in wanted:
            out.add("checkpoints")
        return sorted(out)

    def item(self, ns: tuple[str, ...], mode: str, data: Any) -> None:
        if mode == "messages":
            self._message(ns, data)
            return
        root = not ns
        if mode == "checkpoints":
            ident = data["config"]["configurable"].get("checkpoint_id", "")
            unsaved = "" if ident in self._loaded or not root else ident
            if self._ids:
                self._emit(IDS, "|".join(ns), dumps(_checkpoint_id(data)), unsaved)
            self._release(ns, unsaved)
        if mode == "updates" and not VALUES_ASK and mode not in self._wanted and isinstance(data, dict) and data.get(INTERRUPT):
            mode, data = "values", {INTERRUPT: data[INTERRUPT]}
        if mode not in self._wanted:
            return
        if mode == "values" and (root and self._hold or self._ids):
            self.flush(ns)
            # LangGraph emits values, saves the checkpoint and emits that, without a pause. If none follows at once, none will; but threads emit items of
            # subgraphs, which may come between.
            self._held[ns] = dumps(data)
            if root and self._soon is not None:
                self._soon(self._release_root)
            return
        if mode == "debug":
            data = _debug(data)
        elif mode == "tools":
            _identify(data.get("output"))
        if mode != "checkpoints":
            self.flush(ns if self._ids else ())
        self._emit(mode, "|".join(ns), dumps(data), "")

    def flush(self, within: tuple[str, ...] = ()) -> None:
        """Emits the held values of a namespace and those in it, the deepest first."""
        if self._held:
            for ns in sorted(self._held, key=len, reverse=True):
                if ns[: len(within)] == within:
                    self._release(ns)

    def _release(self, ns: tuple[str, ...], checkpoint: str = "") -> None:
        held = self._held.pop(ns, None)
        if held is not None:
            self._emit("values", "|".join(ns), held, checkpoint)

    def _release_root(self) -> None:
        self._release(())

    def channel(self, name: str, item: Any) -> None:
        self.flush()
        self._emit(transformers.CHANNELS, "", dumps({"name": name, "payload": item}), "")

    def event(self, event: dict) -> None:
        self.flush()
        self._emit("events", "", dumps(event), "")

    # --- messages ----------------------------------------------------------------------

    def _metadata(self, meta: dict) -> orjson.Fragment:
        # One object per model call or node, the same for each of its chunks.
        if self._meta is None or self._meta[0] is not meta:
            self._meta = (meta, orjson.Fragment(dumps(meta)))
        return self._meta[1]

    def _message(self, ns: tuple[str, ...], data: tuple[Any, dict]) -> None:
        self.flush(ns if self._ids else ())
        message, meta = data
        if self._streaming and transformers.internal(meta):
            return
        fragment = self._metadata(meta)
        if self._tuples:
            try:
                out = orjson.dumps([message_dict(message), fragment], default=_default, option=OPTIONS)
            except Exception:
                out = None
            if out is None or b"\\u0000" in out:
                out = dumps([message, fragment])
            self._emit("messages", "|".join(ns), out, "")
            return
        if not self._messages:
            return
        ident = message.id
        if ident not in self._known:
            self._known.add(ident)
            self._emit("messages/metadata", "", dumps({ident: {"metadata": fragment}}), "")
        if isinstance(message, BaseMessageChunk):
            before = self._whole.get(ident)
            whole = message if before is None else before + message
            self._whole[ident] = whole
            self._emit("messages/partial", "", dumps([message_chunk_to_message(whole)]), "")
        else:
            self._whole.pop(ident, None)
            self._emit("messages/complete", "", dumps([message]), "")


def _checkpoint_id(data: dict) -> dict:
    parent, metadata = data["parent_config"], data["metadata"]
    return {
        "id": data["config"]["configurable"].get("checkpoint_id"),
        **({"parent_id": parent["configurable"].get("checkpoint_id")} if parent else {}),
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }


def _identify(output: Any) -> None:
    """A message gets the id that its state will have, as it would get it when its node ends."""
    if isinstance(output, BaseMessage) and output.id is None:
        output.id = str(uuid4())


def _debug(data: dict) -> dict:
    if data.get("type") != "checkpoint":
        return data
    payload = data["payload"]
    return {**data, "payload": {
        **payload,
        "tasks": [_debug_task(t) for t in payload["tasks"]],
        "checkpoint": _reference(payload["config"]),
        "parent_checkpoint": _reference(payload["parent_config"]),
    }}


def _debug_task(task: dict) -> dict:
    state = task.get("state")
    if not isinstance(state, dict):
        return task
    out = {k: v for k, v in task.items() if k != "state"}
    out["checkpoint"] = state.get("configurable")
    return out


def _reference(config: dict | None) -> dict | None:
    if not config:
        return None
    conf = config["configurable"]
    return {k: conf[k] for k in ("checkpoint_id", "thread_id", "checkpoint_ns", "checkpoint_map") if k in conf}
