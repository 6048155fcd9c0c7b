"""A graph whose transformer fails while its node works."""
from __future__ import annotations

import asyncio
from pathlib import Path

from langgraph.graph import END, START, StateGraph
from langgraph.stream import StreamTransformer
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    out: str


class Fails(StreamTransformer):
    required_stream_modes = ("custom",)

    def init(self) -> dict:
        return {}

    def process(self, event) -> bool:
        if event["method"] == "custom":
            raise RuntimeError("the transformer failed")
        return True


async def work(state: State) -> State:
    from langgraph.config import get_stream_writer

    get_stream_writer()("working")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        Path(state["out"]).write_text("cancelled")
        raise
    return {}


_b = StateGraph(State)
_b.add_node("work", work)
_b.add_edge(START, "work")
_b.add_edge("work", END)
graph = _b.compile(transformers=[Fails])
