"""What a running graph emits, as events of the API."""
from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import orjson
from langchain_core.messages import BaseMessage, BaseMessageChunk
from langchain_core.messages.utils import message_chunk_to_message

from .jsonenc import OPTIONS, _default, dumps, message_dict

# (event, namespace, JSON, checkpoint that must be committed first or "")
Emit = Callable[[str, str, bytes, str], None]

# Whether LangGraph streams calls of tools; older releases refuse the mode.
TOOLS = find_spec("langgraph.pregel._tools") is not None


class Shaper:
    """Of one run. `wanted` are modes as the API names them."""

    def __init__(self, wanted: set[str], emit: Emit, hold: bool, loaded: set[str], soon: Callable[[Callable], Any] | None) -> None:
        self._wanted = wanted
        self._emit = emit
        self._hold = hold
        self._loaded = loaded
        self._soon = soon
        self._held: bytes | None = None  # root values whose checkpoint is not known yet
        self._tuples = "messages-tuple" in wanted
        self._messages = "messages" in wanted and not self._tuples
        self._meta: tuple[Any, orjson.Fragment] | None = None
        self._whole: dict[str, Any] = {}  # accumulated chunks by message id
        self._known: set[str] = set()

    @staticmethod
    def modes(wanted: set[str], hold: bool) -> list[str]:
        """Stream modes to ask of LangGraph. Root checkpoints tell which commit a root `values` waits for."""
        out = {m for m in wanted if m not in ("events", "messages-tuple")}
        if not TOOLS:
            out.discard("tools")
        if "messages-tuple" in wanted:
            out.add("messages")
        if hold and "values" in wanted:
            out.add("checkpoints")
        return sorted(out)

    def item(self, ns: tuple[str, ...], mode: str, data: Any) -> None:
        if mode == "messages":
            self._message(ns, data)
            return
        root = not ns
        if mode == "checkpoints" and root and self._held is not None:
            ident = data["config"]["configurable"].get("checkpoint_id", "")
            self.flush("" if ident in self._loaded else ident)
        if mode not in self._wanted:
            return
        if mode == "values" and root and self._hold:
            self.flush()
            # LangGraph emits values, saves the checkpoint and emits that, without a pause. If none follows at once, none will.
            self._held = dumps(data)
            if self._soon is not None:
                self._soon(self.flush)
            return
        if mode == "debug":
            data = _debug(data)
        elif mode == "tools":
            _identify(data.get("output"))
        if self._held is not None and mode != "checkpoints":
            self.flush()
        self._emit(mode, "|".join(ns), dumps(data), "")

    def flush(self, checkpoint: str = "") -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._emit("values", "", held, checkpoint)

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
        self.flush()
        message, meta = data
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
