"""Graphs for the tests of package python."""
from __future__ import annotations

import asyncio
import operator
import os
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date, datetime, time as clock, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.config import get_store, get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict


def line(state, *nodes, **kwargs):
    builder = StateGraph(state, **kwargs)
    last = START
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(last, name)
        last = name
    builder.add_edge(last, END)
    return builder


class Echo(TypedDict, total=False):
    n: int


echo = line(Echo, ("echo", lambda state: {"n": state.get("n", 0) + 1})).compile()
builder = line(Echo, ("echo", lambda state: {"n": state.get("n", 0) + 1}))


class Items(TypedDict, total=False):
    topic: str
    items: Annotated[list[str], operator.add]
    answer: Any


def ask(state: Items):
    get_stream_writer()({"asking": True})
    return {"answer": interrupt({"question": "ok?"})}


asking = line(Items, ("first", lambda state: {"items": ["first"]}), ("ask", ask)).compile()
nested = line(Items, ("before", lambda state: {"items": ["before"]}), ("child", line(Items, ("ask", ask)).compile())).compile()


async def work(state: Items):
    await asyncio.sleep(0.01 * (2 - int(state["topic"][-1])))
    return {"items": [state["topic"]]}


_b = StateGraph(Items)
_b.add_node("plan", lambda state: {"items": ["plan"]})
_b.add_node("work", work)
_b.add_edge(START, "plan")
_b.add_conditional_edges("plan", lambda state: [Send("work", {"topic": f"t{i}"}) for i in range(3)], ["work"])
fan = _b.compile()


class Private(Exception):
    pass


def boom(state: Items):
    if state.get("topic") == "none":
        return {"items": ["survived"]}
    raise {"value": ValueError, "key": KeyError, "private": Private}[state.get("topic", "value")]("boom")


failing = line(Items, ("ok", lambda state: {"items": ["ok"]}), ("boom", boom)).compile()


async def forever(state):
    await asyncio.sleep(3600)


async def spin(state):
    while True:
        pass


async def stubborn(state):
    end = time.monotonic() + 3600
    while time.monotonic() < end:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


async def die(state):
    os._exit(7)


def leave(state):
    sys.exit(3)


waiting = line(Items, ("first", lambda state: {"items": ["first"]}), ("wait", forever)).compile()
spinning = line(Items, ("spin", spin)).compile()
refusing = line(Items, ("refuse", stubborn)).compile()
dying = line(Items, ("first", lambda state: {"items": ["first"]}), ("die", die)).compile()
leaving = line(Items, ("leave", leave)).compile()


class Deadly:
    def model_dump(self):
        """Ends the process while the value is saved, after what was sent before."""
        import gc

        from understudy_worker.wire import Wire

        next(o for o in gc.get_objects() if isinstance(o, Wire)).flush()
        os._exit(7)


def strict(old: list, new: list) -> list:
    if new[:1] == ["die"]:
        return [Deadly()]
    if new[:1] == ["fail"]:
        raise ValueError("not this")
    return (old or []) + new


class Strict(TypedDict, total=False):
    items: Annotated[list, strict]


strictly = line(Strict, ("first", lambda state: {"items": ["first"]})).compile()


def speak_up(state):
    print("said", flush=True)
    import logging

    logging.getLogger("mine").warning("logged")
    return {}


talking = line(Items, ("talk", speak_up)).compile()


async def pour(state: Items):
    writer = get_stream_writer()
    for i in range(200):
        writer("x" * 500_000)
        await asyncio.sleep(0)
    return {"items": ["done"]}


pouring = line(Items, ("pour", pour)).compile()


class Words(BaseChatModel):
    """Says `count` words."""

    count: int = 3

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(" ".join(f"w{i}" for i in range(self.count))))])

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        for i in range(self.count):
            if i % 16 == 0:
                await asyncio.sleep(0)
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"w{i} "))


async def speak(state: MessagesState):
    reply = None
    async for chunk in Words(count=int(state["messages"][-1].content)).astream(state["messages"]):
        reply = chunk if reply is None else reply + chunk
    return {"messages": [reply]}


async def stream_only(state: MessagesState):
    async for _ in Words(count=int(state["messages"][-1].content)).astream(state["messages"]):
        pass
    return {}


tokens = line(MessagesState, ("speak", speak)).compile()
tokens_only = line(MessagesState, ("speak", stream_only)).compile()


@dataclass
class Ctx:
    user: str = "nobody"


def report(state: dict, config: RunnableConfig, runtime: Runtime[Ctx]):
    ctx = runtime.context
    return {"answer": {
        "context": ctx.user if ctx else None,
        "configurable": sorted(k for k in config["configurable"] if not k.startswith(("__", "checkpoint"))),
        "metadata": {k: v for k, v in config["metadata"].items() if not k.startswith(("langgraph_", "checkpoint"))},
    }}


contextual = line(Items, ("report", report), context_schema=Ctx).compile()


def make_graph(config: RunnableConfig):
    name = config["configurable"].get("node", "plain")
    return line(Echo, (name, lambda state: {"n": 1}))


@entrypoint()
async def functional(n: int) -> int:
    return n + 1


async def remember(state: Items):
    store = get_store()
    await store.aput(("facts", "of"), state["topic"], {"fact": state["topic"]})
    got = await store.aget(("facts", "of"), state["topic"])
    found = await store.asearch(("facts",))
    spaces = await store.alist_namespaces()
    try:
        store.get(("facts",), "x")
        error = ""
    except asyncio.InvalidStateError as exc:
        error = type(exc).__name__
    thread = await asyncio.to_thread(store.get, ("facts", "of"), state["topic"])
    return {"answer": [got.value, [i.key for i in found], spaces, error, thread.key]}


memory = line(Items, ("remember", remember)).compile()


class Colour(Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    y: float = 0.5


@dataclass
class Pair:
    a: int
    b: str


KINDS = {
    "datetime": datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc),
    "date": date(2024, 1, 2),
    "time": clock(3, 4, 5),
    "timedelta": timedelta(minutes=1, milliseconds=500),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "set": {7},
    "tuple": (1, "two"),
    "decimal_int": Decimal("12"),
    "decimal_frac": Decimal("1.50"),
    "bytes": b"\x00\xffhi",
    "enum": Colour.RED,
    "pydantic": Point(x=1),
    "dataclass": Pair(a=1, b="x"),
    "path": Path("a/b"),
    "nan": float("nan"),
    "inf": float("inf"),
    "float_whole": 1.0,
    "big_int": 2**53 + 1,
    "huge_int": 2**80,
    "huge_nested": {"deep": [2**80, Point(x=2**70)], "at": date(2024, 1, 2)},
    "int_keys": {1: "one", 2: "two"},
    "tuple_keys": {(1, 2): 3},
    "none": None,
    "unicode": "héllo ☃ \U0001f600",
    "nul": "a\x00b",
    "nuls": "\x00\x00\x00",
    "backslash": "a\\u0000b",
    "lone_surrogate": "a\ud800b",
    "message": HumanMessage("hi", id="m1"),
    "send": Send("somewhere", {"k": 1}),
    "complex": 1 + 2j,
    "exception": ValueError("v"),
    "private": Private("secret"),
}


class Kinds(TypedDict, total=False):
    only: str
    value: Any
    seen: str


kinds = line(Kinds, ("produce", lambda state: {"value": KINDS[state["only"]]}), ("look", lambda state: {"seen": ascii(state["value"])})).compile()


class Counted(Words):
    """Says how many tokens it used, and in which way it was called."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        usage = {"input_tokens": 10, "output_tokens": self.count, "total_tokens": 10 + self.count}
        message = AIMessage("whole", usage_metadata=usage, response_metadata={"model_name": f"counted-{self.count}"})
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        yield ChatGenerationChunk(message=AIMessageChunk(content="strea"))
        usage = {"input_tokens": 10, "output_tokens": self.count, "total_tokens": 10 + self.count}
        yield ChatGenerationChunk(message=AIMessageChunk(content="med", usage_metadata=usage, response_metadata={"model_name": f"counted-{self.count}"}))


def in_thread(state: MessagesState):
    """A sync node: the call ends in a thread of its own."""
    return {"messages": [Counted(count=1).invoke("x")]}


async def twice(state: MessagesState):
    await asyncio.gather(Counted(count=2).ainvoke("x"), Counted(count=3).ainvoke("x", {"tags": ["nostream", "middleware:title"]}))
    return {"messages": [await Counted(count=4).ainvoke("x", {"metadata": {"lc_source": "summarization"}})]}


async def hook(state: MessagesState):
    await Counted(count=5).ainvoke("x")
    try:
        await Counted(count=6).bind(stop="nonsense").with_config({"run_name": "y"}).ainvoke(object())
    except Exception:
        pass  # no call: it failed before the model
    return {}


inner = line(MessagesState, ("in_thread", in_thread), ("T.before_model", hook)).compile()


async def inside(state: MessagesState):
    await inner.ainvoke({"messages": []})
    return {}


async def by_task(state: MessagesState):
    await tasks.ainvoke("x")
    return {}


@task
async def one(x):
    return (await Counted(count=7).ainvoke(x)).content


@entrypoint()
async def tasks(x: str) -> str:
    return await one(x)


calling = line(MessagesState, ("in_thread", in_thread), ("twice", twice), ("T.after_agent", hook), ("sub", inner), ("inside", inside), ("by_task", by_task)).compile()


@tool
def lookup(key: str) -> str:
    """Looks up."""
    if key == "bad":
        raise ValueError("secret")
    return key * 2


FLAKED: set[str] = set()


async def flaky(state: Items):
    if state["topic"] not in FLAKED:
        FLAKED.add(state["topic"])
        raise ConnectionError("secret")
    return {}


async def use_tools(state: Items):
    await lookup.ainvoke({"key": "a"})
    try:
        await lookup.ainvoke({"key": "bad"})
    except ValueError:
        pass
    return {}


_t = StateGraph(Items)
_t.add_node("flaky", flaky, retry_policy=RetryPolicy(initial_interval=0.01, jitter=False))
_t.add_node("use", use_tools)
_t.add_node("child", line(Items, ("ask", ask)).compile())
_t.add_edge(START, "flaky")
_t.add_edge("flaky", "use")
_t.add_edge("use", "child")
traced = _t.compile()


class Locked:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


@dataclass
class Session:
    lock: Any


class Unsaved(TypedDict, total=False):
    topic: str
    session: Any
    held: Annotated[list, lambda old, new: [threading.Lock()]]


def fetch(state: Unsaved):
    made = {"plain": {"session": threading.Lock()}, "deep": {"session": {"x": [1, Session(threading.Lock())]}}, "reducer": {"held": [1]}}
    return made.get(state["topic"], {})


_u = StateGraph(Unsaved)
_u.add_node("fetch", fetch)
_u.add_edge(START, "fetch")
_u.add_conditional_edges("fetch", lambda state: [Send("fetch", {"topic": "", "lock": Locked()})] if state["topic"] == "send" else END)
unsaved = _u.compile()
