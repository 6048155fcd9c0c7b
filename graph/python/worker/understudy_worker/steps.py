"""Says which nodes of a run are being executed, when the process that executed it before has died."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler


class Steps(BaseCallbackHandler):
    """Reports the name of each node before it is called, and again when it has ended. The report has to leave at once: the process may be about to die."""

    run_inline = True
    ignore_agent = ignore_llm = ignore_chat_model = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str, bool], Any]) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._report = report
        self._running: dict[UUID, str] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, tags: Any = None, metadata: Any = None, **kwargs: Any) -> None:
        # What a node calls has its metadata too, and not its tag.
        if any(tag.startswith("graph:step:") for tag in tags or () if isinstance(tag, str)):
            name = (metadata or {}).get("langgraph_node")
            if isinstance(name, str):
                self._running[run_id] = name
                self._tell(name, True)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if (name := self._running.pop(run_id, None)) is not None:
            self._tell(name, False)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_chain_end(None, run_id=run_id)

    def _tell(self, name: str, began: bool) -> None:
        if threading.get_ident() == self._thread:
            self._report(name, began)
        else:
            self._loop.call_soon_threadsafe(self._report, name, began)
