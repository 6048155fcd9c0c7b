"""Counts the model calls of a run, wherever in it they are made."""
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler


class Calls(BaseCallbackHandler):
    """Reports each model call of a run when it has ended: [id, message, node, nested, source, tags, model, usage, microseconds that it took].

    It is not one of the handlers for which LangChain makes models stream, so it does not change how they run.
    """

    # In the caller's thread: else LangChain starts a thread for each event.
    run_inline = True
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[list], Any]) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._report = report
        self._started: dict[UUID, tuple[dict, list[str], float]] = {}

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, tags: Any = None, metadata: Any = None, **kwargs: Any) -> None:
        self._started[run_id] = (metadata or {}, tags or [], time.monotonic())

    on_llm_start = on_chat_model_start

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._started.pop(run_id, None)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        call = self._call(response, run_id)
        if threading.get_ident() == self._thread:
            self._report(call)
        else:  # before what the node returns, which takes the same way
            self._loop.call_soon_threadsafe(self._report, call)

    def _call(self, response: Any, run_id: UUID) -> list:
        metadata, tags, began = self._started.pop(run_id, ({}, [], None))
        took = 0 if began is None else max(1, int((time.monotonic() - began) * 1_000_000))
        return [*_call(str(run_id), response, metadata, tags), took]


def _call(ident: str, response: Any, metadata: dict, tags: list[str]) -> list:
    generation = next((g for several in response.generations for g in several), None)
    message = getattr(generation, "message", None)
    about = getattr(message, "response_metadata", None) or {}
    output = response.llm_output or {}
    usage = _usage(getattr(message, "usage_metadata", None), "input_tokens", "output_tokens") or _usage(
        about.get("token_usage") or output.get("token_usage"), "prompt_tokens", "completion_tokens"
    )
    model = about.get("model_name") or about.get("model") or output.get("model_name") or metadata.get("ls_model_name")
    return [
        ident,
        _text(getattr(message, "id", None)),
        _text(metadata.get("langgraph_node")),
        _nested(metadata),
        _text(metadata.get("lc_source")),
        [tag for tag in tags if isinstance(tag, str)],
        _text(model),
        usage,
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _usage(usage: Any, given: str, made: str) -> list[int] | None:
    if not isinstance(usage, dict):
        return None
    try:
        inputs, outputs = int(usage.get(given) or 0), int(usage.get(made) or 0)
        return [inputs, outputs, int(usage.get("total_tokens") or inputs + outputs)]
    except (TypeError, ValueError):
        return None


def _nested(metadata: dict) -> bool:
    """Whether a subgraph called the model. A task of a functional graph is a level of the namespace and no subgraph."""
    levels = _text(metadata.get("langgraph_checkpoint_ns")).count("|")
    path = metadata.get("langgraph_path")
    while isinstance(path, tuple) and len(path) == 4 and path[3] is True:
        levels, path = levels - 1, path[1]
    return levels > 0
