"""LangGraph's RemoteGraph as a client: a graph of this server as a runnable, and as a node of a graph elsewhere."""
from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any, TypedDict

import pytest
from helpers import BASE_URL
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_sync_client

def graph(graph_id: str, **options) -> RemoteGraph:
    return RemoteGraph(graph_id, url=BASE_URL, **options)


def text(content) -> str:
    """LangGraph Server changes content to blocks in runs of event streaming."""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def thread() -> dict[str, Any]:
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


def say(n: int) -> dict:
    return {"messages": [{"role": "user", "content": f"say {n}"}]}


def words(n: int) -> str:
    return " ".join(f"w{i}" for i in range(n))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 15))


def test_invoke_state_and_history():
    remote, config = graph("pipeline"), thread()
    get_sync_client(url=BASE_URL).threads.create(thread_id=config["configurable"]["thread_id"])
    out = remote.invoke({"topic": "t"}, config)
    assert out["items"] == ["t", "t-0", "t-1", "t-2"]
    state = remote.get_state(config)
    assert state.next == ("ask",)
    assert state.interrupts[0].value["question"] == "ok?"
    assert remote.invoke(Command(resume="yes"), config)["answer"] == "yes"
    steps = [s.metadata["step"] for s in remote.get_state_history(config)]
    assert steps == sorted(steps, reverse=True)
    at = remote.update_state(config, {"items": ["more"]}, as_node="ask")
    assert remote.get_state(at).values["items"][-1] == "more"
    assert set(remote.get_graph().nodes) >= {"plan", "work", "ask"}


@pytest.mark.parametrize("modes", ["values", "updates", "messages", ["values", "updates"], ["messages", "tasks"]])
def test_stream_v1(modes):
    parts = list(graph("agent").stream(say(3), stream_mode=modes))
    if modes == "messages":
        assert "".join(chunk["content"] for chunk, _ in parts if chunk["type"] in ("AIMessageChunk", "ai")) == words(3)
    elif modes == "values":
        assert parts[-1]["messages"][-1]["content"] == words(3)
    elif modes == "updates":
        assert parts[0]["model"]["messages"][0]["content"] == words(3)
    else:
        assert {next(x for x in part if isinstance(x, str)) for part in parts} == set(modes)


def test_astream_with_subgraphs():
    async def go():
        return [p async for p in graph("parent").astream(say(2), stream_mode="updates", subgraphs=True)]

    parts = run(go())
    assert any(ns and ns[0].startswith("child:") for ns, _ in parts)
    assert any(not ns for ns, _ in parts)


def test_as_a_node_of_another_graph():
    """Messages of the remote graph come out of the graph that it is a node of."""
    builder = StateGraph(MessagesState)
    builder.add_node("remote", graph("agent", name="remote"))
    builder.add_edge(START, "remote")
    builder.add_edge("remote", END)
    local = builder.compile()
    parts = list(local.stream(say(4), stream_mode=["updates", "messages"], subgraphs=True))
    assert [d for _, mode, d in parts if mode == "updates"][-1]["remote"]["messages"][-1]["content"] == words(4)


def test_stream_events_v3():
    config = thread()
    with graph("agent").stream_events(say(3), config, version="v3") as stream:
        texts = [str(m.text) for m in stream.messages]
        assert texts == [words(3)]
        assert text(stream.output["messages"][-1]["content"]) == words(3)
        assert not stream.interrupted
    state = graph("agent").get_state(config)
    assert [text(m["content"]) for m in state.values["messages"]] == ["say 3", words(3)]


def test_astream_events_v3():
    async def go():
        async with await graph("parent").astream_events(say(2), thread(), version="v3") as stream:
            return [(h.graph_name, [await m.text for m in [m async for m in h.messages]]) for h in [h async for h in stream.subgraphs]]

    assert run(go()) == [("child", [words(2)])]


@pytest.mark.skipif(os.environ.get("REAL") == "1", reason="there the SDK takes the replayed end of the first run for that of the second")
def test_interrupt_v3():
    async def go():
        remote, config = graph("pipeline"), thread()
        async with await remote.astream_events({"topic": "t"}, config, version="v3") as stream:
            while not await stream.interrupted():
                await asyncio.sleep(0.02)
        async with await remote.astream_events(Command(resume="yes"), config, version="v3") as stream:
            while True:  # `values` ends where the SDK reads the request of the first run, which is replayed, and begins again
                async for values in stream.values:
                    if values.get("answer"):
                        return values

    assert run(go())["answer"] == "yes"


def test_failure_v3():
    async def go():
        async with await graph("failing").astream_events({"topic": "t"}, thread(), version="v3") as stream:
            await stream.output()

    with pytest.raises(Exception, match="boom: node failed"):
        run(go())
