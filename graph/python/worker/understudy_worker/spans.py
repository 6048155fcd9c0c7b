"""Reports when nodes, models and tools of a run begin and end."""
from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from . import errors, jsonenc
from .calls import Calls

# How many spans of a run are open or known as parents at most. What begins beyond it is not reported.
MOST = 100_000

NODE, MODEL, TOOL = "node", "model", "tool"
SUCCESS, ERROR, INTERRUPTED, CANCELLED = "success", "error", "interrupted", "cancelled"


class Spans(Calls):
    """Reports begins as [id, parent, kind, name, namespace, node, step, provider, µs, input], and ends as
    [id, µs, µs of the first token, status, error type, error text, stack, model, message, usage, output].

    Inputs and outputs are nil, or [JSON, whether it is cut]. It reports model calls too, as Calls does, so that a run needs one handler.
    """

    ignore_agent = ignore_chain = False

    def __init__(
        self, loop: asyncio.AbstractEventLoop, count: Callable[[list], Any] | None, begin: Callable[[list], Any], end: Callable[[list], Any], content: int,
        returned: Callable[[str, Any], Any],
    ) -> None:
        super().__init__(loop, count or _ignore)
        self._begin, self._end = begin, end
        self._content = content
        self._last = 0
        self._open: dict[UUID, int] = {}  # spans
        self._above: dict[UUID, int] = {}  # the nearest span above other runnables
        self._first: dict[UUID, int] = {}  # of models that stream
        self._returned = returned  # gets what each node of the graph itself, not of one inside, returns
        self._nodes: dict[UUID, str] = {}  # those nodes

    # --- what runs -----------------------------------------------------------------------

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, tags: Any = None, metadata: Any = None, **kwargs: Any) -> None:
        if metadata and tags and (name := metadata.get("langgraph_node")) and _is_node(name, tags, metadata, kwargs.get("name")):
            self._start(run_id, parent_run_id, NODE, name, metadata, None)
            if run_id in self._open and "|" not in _text(metadata.get("langgraph_checkpoint_ns")):
                self._nodes[run_id] = name
            return
        if above := self._parent(parent_run_id):
            if len(self._above) < MOST:
                self._above[run_id] = above

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if self._above.pop(run_id, None) is None:
            if node := self._nodes.pop(run_id, None):
                self._returned(node, outputs)
            self._stop(run_id, SUCCESS)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if self._above.pop(run_id, None) is None:
            self._nodes.pop(run_id, None)
            self._fail(run_id, error)

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, parent_run_id: UUID | None = None, tags: Any = None, metadata: Any = None, **kwargs: Any) -> None:
        super().on_chat_model_start(serialized, messages, run_id=run_id, tags=tags, metadata=metadata)
        name = kwargs.get("name") or (serialized or {}).get("name") or (metadata or {}).get("ls_model_name")
        given = self._messages(messages) if self._content else None
        self._start(run_id, parent_run_id, MODEL, _text(name) or "model", metadata or {}, given)

    on_llm_start = on_chat_model_start

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if run_id not in self._first and run_id in self._open:
            self._first[run_id] = time.time_ns() // 1000

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        super().on_llm_error(error, run_id=run_id)
        self._fail(run_id, error)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        call = self._call(response, run_id)
        self._send(self._report, call)
        message = _message(response)
        usage = [*call[7], _cached(message)] if call[7] else None
        made = self._value(message) if self._content and message is not None else None
        self._stop(run_id, SUCCESS, model=call[6], message=call[1], usage=usage, output=made)

    def on_tool_start(self, serialized: Any, input_str: Any, *, run_id: UUID, parent_run_id: UUID | None = None, metadata: Any = None, inputs: Any = None, **kwargs: Any) -> None:
        name = kwargs.get("name") or (serialized or {}).get("name")
        given = self._value(input_str if inputs is None else inputs) if self._content else None
        self._start(run_id, parent_run_id, TOOL, _text(name) or "tool", metadata or {}, given)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        status = ERROR if getattr(output, "status", None) == "error" else SUCCESS
        self._stop(run_id, status, output=self._value(output) if self._content else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._fail(run_id, error)

    # --- spans ---------------------------------------------------------------------------

    def _parent(self, run_id: UUID | None) -> int:
        return 0 if run_id is None else self._open.get(run_id) or self._above.get(run_id) or 0

    def _start(self, run_id: UUID, above: UUID | None, kind: str, name: str, metadata: dict, given: list | None) -> None:
        at = time.time_ns() // 1000
        if len(self._open) >= MOST:
            return
        parent = self._parent(above)
        self._last += 1
        ident = self._open[run_id] = self._last
        step = metadata.get("langgraph_step")
        self._send(self._begin, [
            ident, parent, kind, name, _text(metadata.get("langgraph_checkpoint_ns")), _text(metadata.get("langgraph_node")),
            step if isinstance(step, int) else 0, _text(metadata.get("ls_provider")), at, given,
        ])

    def _stop(self, run_id: UUID, status: str, error: tuple[str, str, str] = ("", "", ""), model: str = "", message: str = "", usage: list | None = None, output: list | None = None) -> None:
        ident = self._open.pop(run_id, None)
        if ident is not None:
            first = self._first.pop(run_id, 0)
            self._send(self._end, [ident, time.time_ns() // 1000, first, status, *error, model, message, usage, output])

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        if isinstance(error, GraphInterrupt):
            self._stop(run_id, INTERRUPTED)
        elif isinstance(error, GraphBubbleUp):  # a command for a graph above
            self._stop(run_id, SUCCESS)
        elif isinstance(error, asyncio.CancelledError):
            self._stop(run_id, CANCELLED)
        else:
            self._stop(run_id, ERROR, self._failure(error))

    def _failure(self, error: BaseException) -> tuple[str, str, str]:
        if self._content:
            try:
                text = str(error)
            except Exception:
                text = errors.MASK
            return type(error).__name__, _safe(_short(text, self._content)[0]), _safe(errors.detail(error))
        # Without content the stack shows code, and no texts of exceptions.
        try:
            stack = "".join(traceback.format_tb(error.__traceback__))[-32768:]
        except Exception:
            stack = ""
        return type(error).__name__, "", _safe(stack)

    # --- content -------------------------------------------------------------------------

    def _messages(self, messages: Any) -> list | None:
        """The last messages, as many as fit."""
        if not isinstance(messages, list):
            return None
        # A chat model gets batches of messages, others get texts.
        flat = [m for batch in messages for m in (batch if isinstance(batch, list) else [batch])]
        room, kept, cut = self._content, [], False
        for message in reversed(flat):
            one, short = self._value(message, room)
            if kept and (short or len(one) > room):
                cut = True
                break
            kept.append(one)
            cut, room = cut or short, room - len(one)
        return [b"[" + b",".join(reversed(kept)) + b"]", cut or len(kept) < len(flat)]

    def _value(self, value: Any, room: int = 0) -> list:
        room = room or self._content
        if isinstance(value, BaseMessage) and isinstance(value.content, str) and len(value.content) > room:
            value = value.model_copy(update={"content": _short(value.content, room)[0]})
            return [self._dump(value), True]
        if isinstance(value, str):
            text, cut = _short(value, room)
            return [jsonenc.dumps(text), cut]
        packed = self._dump(value)
        if len(packed) <= room:
            return [packed, False]
        return [jsonenc.dumps(packed[:room].decode("utf-8", "ignore")), True]

    @staticmethod
    def _dump(value: Any) -> bytes:
        try:
            return jsonenc.dumps(value)
        except Exception:
            return b"null"

    def _send(self, report: Callable[[list], Any], what: list) -> None:
        if threading.get_ident() == self._thread:
            report(what)
        else:
            self._loop.call_soon_threadsafe(report, what)


def _is_node(name: Any, tags: list, metadata: dict, runnable: Any) -> bool:
    """What a node calls has its metadata too, and not its tag. A task of a functional graph has the tag of a sequence."""
    if not isinstance(name, str):
        return False
    for tag in tags:
        if isinstance(tag, str) and tag.startswith("graph:step:"):
            return True
    path = metadata.get("langgraph_path")
    return runnable == name and "seq:step:1" in tags and isinstance(path, tuple) and len(path) == 4 and path[3] is True


def _ignore(_: list) -> None:
    pass


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _short(text: str, room: int) -> tuple[str, bool]:
    return (text[:room], True) if len(text) > room else (text, False)


def _message(response: Any) -> Any:
    generation = next((g for several in response.generations for g in several), None)
    return getattr(generation, "message", None) or getattr(generation, "text", None)


def _cached(message: Any) -> int:
    details = (getattr(message, "usage_metadata", None) or {}).get("input_token_details")
    try:
        return int((details or {}).get("cache_read") or 0)
    except (AttributeError, TypeError, ValueError):
        return 0
