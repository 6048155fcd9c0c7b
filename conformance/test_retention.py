"""Retention: threads, checkpoints and items whose time is up. LangGraph Server with its in-memory runtime accepts a ttl and does nothing with it.

These tests start a server of their own; the server under test is not used.
"""
from __future__ import annotations

import asyncio
import json
import time

import httpx
import pytest
from langgraph_sdk import get_client

from helpers import TIME_RE
from moving import Folder, understudy

GRAPHS = """
import asyncio
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


async def answer(state: Chat):
    said = state["messages"][-1].content
    await asyncio.sleep(float(said[5:]) if said.startswith("wait ") else 0)
    return {"messages": [AIMessage("answer to " + said)]}


chat = StateGraph(Chat).add_node(answer).add_edge(START, "answer").add_edge("answer", END).compile()


def extend(old, new):
    return [*old, *(x for write in new for x in write)]


class Folded(TypedDict, total=False):
    log: Annotated[list, DeltaChannel(extend, snapshot_frequency=5)]
    seldom: Annotated[list, DeltaChannel(extend, snapshot_frequency=2)]
    n: int


def count(state: Folded):
    n = state.get("n", 0) + 1
    return {"n": n, "log": [f"step {n}"], **({"seldom": [n]} if n % 3 == 0 else {})}


folded = StateGraph(Folded).add_node(count).add_edge(START, "count").add_edge("count", END).compile()


class Single(TypedDict, total=False):
    log: Annotated[list, DeltaChannel(extend, snapshot_frequency=5)]
    n: int


def one(state: Single):
    n = state.get("n", 0) + 1
    return {"n": n, "log": [f"step {n}"]}


single = StateGraph(Single).add_node(one).add_edge(START, "one").add_edge("one", END).compile()


class Kept(TypedDict, total=False):
    n: int


async def keep(state: Kept, *, store: BaseStore):
    await store.aput(("kept",), "default", {"x": 1})
    await store.aput(("kept",), "hour", {"x": 1}, ttl=60)
    await store.aput(("kept",), "ever", {"x": 1}, ttl=None)
    return {"n": 1}


items = StateGraph(Kept).add_node(keep).add_edge(START, "keep").add_edge("keep", END).compile()
"""

SECONDS = 1 / 60  # of a minute


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server that keeps threads for an hour and items for two seconds, and looks every second."""
    folder = tmp_path_factory.mktemp("retention")
    (folder / "graphs.py").write_text(GRAPHS)
    config = folder / "langgraph.json"
    config.write_text(json.dumps({
        "dependencies": ["."],
        "graphs": {name: f"./graphs.py:{name}" for name in ("chat", "folded", "single", "items")},
        "checkpointer": {"ttl": {"strategy": "delete", "default_ttl": 60, "sweep_interval_minutes": SECONDS}},
        "store": {"ttl": {"refresh_on_read": False, "default_ttl": 2 * SECONDS, "sweep_interval_minutes": SECONDS}},
    }))
    with understudy(Folder(folder / "data"), config) as url:
        yield url


@pytest.fixture
def client(url):
    return get_client(url=url)


async def until(check, seconds=60):
    end = time.monotonic() + seconds
    while not (found := await check()):
        assert time.monotonic() < end, "it does not happen"
        await asyncio.sleep(0.2)
    return found


def human(text):
    return {"messages": [{"type": "human", "content": text}]}


async def gone(client, thread):
    try:
        await client.threads.get(thread)
        return False
    except httpx.HTTPStatusError as e:
        return e.response.status_code == 404


async def test_threads_go_with_everything(client, url):
    asked = (await client.threads.create(ttl={"ttl": 60.5, "strategy": "keep_latest"}))["thread_id"]
    left = (await client.threads.create())["thread_id"]
    for thread in (asked, left):
        await client.runs.wait(thread, "chat", input=human("one"))
    ttl = (await client.threads.get(left, include=["ttl"]))["ttl"]
    assert ttl | {"expires_at": ""} == {"strategy": "delete", "ttl_minutes": 60, "expires_at": ""} and TIME_RE.match(ttl["expires_at"])
    assert (await client.threads.get(asked, include=["ttl"]))["ttl"] | {"expires_at": ""} == {"strategy": "keep_latest", "ttl_minutes": 60.5, "expires_at": ""}

    await client.threads.update(left, metadata={}, ttl=0)
    await until(lambda: gone(client, left))
    assert await client.threads.search(ids=[left]) == []
    async with httpx.AsyncClient(base_url=url) as http:
        for path in ("state", "history", "runs", "events", "messages"):
            assert (await http.get(f"/threads/{left}/{path}")).status_code == 404
    # Whoever comes back with the same id begins anew.
    await client.threads.create(thread_id=left)
    assert (await client.threads.get_state(left))["values"] == {}
    assert [m["content"] for m in (await client.runs.wait(left, "chat", input=human("two")))["messages"]] == ["two", "answer to two"]
    assert len(await client.threads.get_history(asked, limit=100)) == 3  # its hour is not over


async def test_busy_threads_stay(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.create(thread, "chat", input=human("wait 3"))
    waiting = await client.runs.create(thread, "chat", input=human("next"))
    await client.threads.update(thread, metadata={}, ttl=0)
    assert [m["content"] for m in (await client.runs.join(thread, waiting["run_id"]))["messages"]] == [
        "wait 3", "answer to wait 3", "next", "answer to next"]
    await until(lambda: gone(client, thread))


async def test_keep_latest_keeps_what_was_said(client):
    thread = (await client.threads.create())["thread_id"]
    for text in ("one", "two"):
        before = await client.runs.wait(thread, "chat", input=human(text))
    assert len(await client.threads.get_history(thread, limit=100)) == 6
    await client.threads.update(thread, metadata={}, ttl={"ttl": 0, "strategy": "keep_latest"})

    async def pruned():
        return len(await client.threads.get_history(thread, limit=100)) == 1
    await until(pruned)
    state = await client.threads.get_state(thread)
    assert state["values"] == before and state["parent_checkpoint"] is None and state["next"] == []
    assert [m["content"] for m in (await client.runs.wait(thread, "chat", input=human("three")))["messages"]][-3:] == ["answer to two", "three", "answer to three"]
    await until(pruned)
    assert len((await client.threads.get(thread))["values"]["messages"]) == 6


def told(history):
    return {s["checkpoint"]["checkpoint_id"]: (s["values"], s["next"], s["metadata"]["step"], s["created_at"]) for s in history}


@pytest.mark.parametrize("graph", ["single", "folded"])
async def test_delta_channels_are_read_as_before(client, graph):
    """Pruning leaves what the newest value is folded from; whatever is left reads as it did."""
    thread = (await client.threads.create())["thread_id"]
    longest, fewer = 0, False
    for n in range(1, 14):
        values = await client.runs.wait(thread, graph, input={"log": [f"input {n}"]})
        assert values["log"] == [f"{kind} {i}" for i in range(1, n + 1) for kind in ("input", "step")]
        if n % 4 == 0 or n == 13:
            before = told(await client.threads.get_history(thread, limit=1000))
            assert await client.threads.prune([thread], strategy="keep_latest") == {"pruned_count": 1}
            after = told(await client.threads.get_history(thread, limit=1000))
            assert after.items() <= before.items() and after
            fewer = fewer or len(after) < len(before)
            state = await client.threads.get_state(thread)
            assert state["values"] == values
            longest = max(longest, len(after))
    assert fewer
    if graph == "single":
        assert longest <= 12  # a snapshot comes with every fifth update


async def test_items_go(client):
    await client.store.put_item(["direct"], "default", {"x": 1})
    await client.store.put_item(["direct"], "hour", {"x": 1}, ttl=60)
    await client.runs.wait(None, "items", input={"n": 0})

    async def left(space):
        return sorted(i["key"] for i in (await client.store.search_items([space]))["items"])

    async def over():  # refresh_on_read is off: looking does not keep them
        return await left("direct") == ["hour"] and await left("kept") == ["ever", "hour"]
    await until(over)
    assert await client.store.get_item(["direct"], "default") is None
