"""Event streaming where it is better than LangGraph Server's, with the real SDK: parallel models, and clients of both wires on one thread."""
from __future__ import annotations

import asyncio
import json
import time
import uuid

import httpx
import pytest
import test_event_streaming as event_streaming
from helpers import BASE_URL
from langgraph_sdk import get_client


def words(n: int) -> str:
    return " ".join(f"w{i}" for i in range(n))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_messages_of_parallel_models_do_not_mix():
    async def go():
        async with get_client(url=BASE_URL).threads.stream(assistant_id="chorus") as thread:
            await thread.run.start(input={"messages": []})
            messages = [m async for m in thread.messages]
            return sorted([await m.text for m in messages], key=len)

    assert run(go()) == [words(8), words(12)]


def test_clients_of_both_wires_share_a_thread():
    async def go():
        client = get_client(url=BASE_URL)
        tid = str(uuid.uuid4())
        async with client.threads.stream(thread_id=tid, assistant_id="agent") as thread:
            started = await thread.run.start(input={"messages": [{"role": "user", "content": 'call search {"q":"cats"}'}]})
            out = await thread.output.with_timeout(20)
            assert out["messages"][-1]["content"] == "tool said: Found 10 results for cats"
        # A v1 client joins the v2 run: the modes that it knows, in their form.
        parts = [p async for p in client.runs.join_stream(tid, started["run_id"], last_event_id="-1")]
        assert {p.event for p in parts} == {"metadata", "values", "updates", "messages", "tasks"}
        spoken = "".join(p.data[0]["content"] for p in parts if p.event == "messages" and p.data[0]["type"] == "AIMessageChunk")
        assert spoken == "tool said: Found 10 results for cats"
        assert [p.data for p in parts if p.event == "values"][-1]["messages"][-1]["content"] == spoken
        # A v2 client sees a v1 run.
        v1 = [p async for p in client.runs.stream(tid, "agent", input={"messages": [{"role": "user", "content": "say 4"}]},
                                                  stream_mode=["values", "messages-tuple"], stream_resumable=True)]
        assert v1[-1].event == "values"
        return tid

    tid = run(go())
    seen, ends = [], 0
    with httpx.stream("POST", f"{BASE_URL}/threads/{tid}/stream/events", json={"channels": ["messages", "lifecycle", "tools"]}, timeout=30) as r:
        for line in r.iter_lines():
            if not line.startswith("data: "):
                continue
            event = httpx.Response(200, text=line[6:]).json()
            seen.append(event)
            ends += event["method"] == "lifecycle" and event["params"]["data"]["event"] == "completed"
            if ends == 2:
                break
    deltas = [e["params"]["data"]["delta"] for e in seen if e["method"] == "messages" and "delta" in e["params"]["data"]]
    assert "".join(d["text"] for d in deltas if d["type"] == "text-delta") == "tool said: Found 10 results for cats" + words(4)
    assert [e["params"]["data"]["event"] for e in seen if e["method"] == "tools"] == ["tool-started", "tool-finished"]
    assert [e["seq"] for e in seen] == sorted({e["seq"] for e in seen})


def test_each_checkpoint_comes_before_its_values():
    """With it a client can edit a message during the run: it starts another run at the checkpoint before."""
    async def go():
        client = get_client(url=BASE_URL)
        tid = str(uuid.uuid4())
        async with client.threads.stream(thread_id=tid, assistant_id="parent") as thread:
            await thread.run.start(input={"messages": [{"role": "user", "content": "say 2"}]})
            await thread.output.with_timeout(20)
        seen = events_until(tid, ["checkpoints", "values"], 1)
        shown: dict[str, dict] = {}
        for e in seen:
            space = "|".join(e["params"]["namespace"])
            if e["method"] == "checkpoints":
                shown[space] = e["params"]["data"]
            elif e["method"] == "values":
                space_id = {"checkpoint_ns": space} if space else {}
                state = await client.threads.get_state(tid, checkpoint={"checkpoint_id": shown[space]["id"], **space_id})
                assert len(state["values"]["messages"]) == len(e["params"]["data"]["messages"])
                assert state["metadata"]["step"] == shown[space]["step"] and state["metadata"]["source"] == shown[space]["source"]
                parent = state["parent_checkpoint"]
                assert shown[space].get("parent_id") == (parent and parent["checkpoint_id"])
        assert set(shown) >= {""} and len(shown) == 2, "of the graph and of its subgraph"
        # The same question, asked anew from where it was asked first.
        first = next(e["params"]["data"] for e in seen if e["method"] == "checkpoints")
        async with client.threads.stream(thread_id=tid, assistant_id="parent") as thread:
            await thread.run.start(input={"messages": [{"role": "user", "content": "say 3"}]}, config={"configurable": {"checkpoint_id": first["id"]}})
            events_until(tid, ["checkpoints", "values"], 2)
        state = await client.threads.get_state(tid)
        return [m["content"] for m in state["values"]["messages"]]

    assert run(go()) == ["say 3", words(3)]


def test_v1_clients_see_no_checkpoint_ids():
    async def go():
        client = get_client(url=BASE_URL)
        tid = str(uuid.uuid4())
        async with client.threads.stream(thread_id=tid, assistant_id="agent") as thread:
            started = await thread.run.start(input={"messages": [{"role": "user", "content": "say 2"}]})
            await thread.output.with_timeout(20)
        return {p.event async for p in client.runs.join_stream(tid, started["run_id"], last_event_id="-1")}

    assert run(go()) == {"metadata", "values", "updates", "messages", "tasks"}


def events_until(tid: str, channels: list[str], ends: int) -> list[dict]:
    """Reads the events of a thread to the end of so many runs."""
    seen = []
    with httpx.stream("POST", f"{BASE_URL}/threads/{tid}/stream/events", json={"channels": [*channels, "lifecycle"]}, timeout=30) as r:
        for line in r.iter_lines():
            if line.startswith("data: "):
                seen.append(httpx.Response(200, text=line[6:]).json())
                over = seen[-1]["method"] == "lifecycle" and seen[-1]["params"]["namespace"] == [] and seen[-1]["params"]["data"]["event"] != "running"
                ends -= over
                if ends == 0:
                    return seen
    raise AssertionError("the stream ended")


def command(tid: str, method: str, params: dict) -> dict:
    r = httpx.post(f"{BASE_URL}/threads/{tid}/commands", json={"id": 1, "method": method, "params": params}, timeout=30)
    assert r.status_code == 200, r.text
    return r.json()


def events(tid: str, body: dict):
    with httpx.stream("POST", f"{BASE_URL}/threads/{tid}/stream/events", json=body, timeout=30) as r:
        for line in r.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


@pytest.mark.parametrize("how", ["run.start", "input.respond"])
def test_an_answer_comes_before_the_end_of_the_run_that_asked(how):
    """One branch of the graph asks, and two more run on: the answer waits for them, and not longer."""
    tid = str(uuid.uuid4())
    with httpx.stream("POST", f"{BASE_URL}/threads/{tid}/stream/events", json={"channels": ["input"]}, timeout=30) as r:
        command(tid, "run.start", {"assistant_id": "branches", "input": {"asking": ["early"]}})
        asked = json.loads(next(line for line in r.iter_lines() if line.startswith("data: "))[6:])["params"]["data"]
    began = time.monotonic()
    if how == "run.start":
        answer = command(tid, how, {"assistant_id": "branches", "input": "yes"})
    else:
        answer = command(tid, how, {"interrupt_id": asked["interrupt_id"], "response": "yes"})
    assert answer["type"] == "success", answer
    assert time.monotonic() - began < 2
    ends = 0
    for e in events(tid, {"channels": ["lifecycle"]}):
        ends += e["params"]["namespace"] == [] and e["params"]["data"]["event"] in ("completed", "interrupted")
        if ends == 2:
            break
    state = httpx.get(f"{BASE_URL}/threads/{tid}/state").json()
    assert sorted(state["values"]["trail"]) == ["early=yes", "joined", "last=last", "late=late"]


def test_a_busy_thread_is_not_waited_for():
    """LangGraph Server waits up to five seconds before a strategy acts on a busy thread, and with an answer to nothing."""
    tid = str(uuid.uuid4())
    first = command(tid, "run.start", {"assistant_id": "ticker", "input": {"steps": 40}})["result"]["run_id"]
    next(e for e in events(tid, {"channels": ["values"]}))
    began = time.monotonic()
    refused = command(tid, "run.start", {"assistant_id": "ticker", "input": {"steps": 1, "delay": 0}, "multitaskStrategy": "reject"})
    assert refused["message"].startswith("409: ")
    assert command(tid, "input.respond", {"interrupt_id": "0" * 32, "response": 1})["error"] == "no_such_interrupt"
    rolled = command(tid, "run.start", {"assistant_id": "ticker", "input": {"steps": 1, "delay": 0}, "multitaskStrategy": "rollback"})
    assert rolled["type"] == "success"
    assert time.monotonic() - began < 1.5
    httpx.get(f"{BASE_URL}/threads/{tid}/runs/{rolled['result']['run_id']}/join", timeout=30)
    assert httpx.get(f"{BASE_URL}/threads/{tid}/runs/{first}").status_code == 404


def test_what_was_applied_is_history():
    """The seq in the answer to run.start divides earlier runs from the new one."""
    tid = str(uuid.uuid4())
    lifecycle = {"channels": ["lifecycle"]}
    seen = 0
    for n in range(3):
        answer = command(tid, "run.start", {"assistant_id": "echo", "input": {"n": n}})
        applied = answer["meta"]["applied_through_seq"]
        assert applied == seen
        got = []
        for e in events(tid, {**lifecycle, "since": applied}):
            got.append(e)
            if e["params"]["data"]["event"] == "completed":
                break
        assert [e["params"]["data"]["event"] for e in got] == ["running", "completed"]
        seen = got[-1]["seq"]


def test_state_commands_with_the_sdk():
    """The Python SDK has no methods for them, but sends any command."""
    async def go():
        client = get_client(url=BASE_URL)
        async with client.threads.stream(assistant_id="nested") as thread:
            await thread.run.start(input={"trail": []})
            while not thread.interrupts:
                await asyncio.sleep(0.02)
            await client.runs.join(thread.thread_id, (await client.runs.list(thread.thread_id))[0]["run_id"])
            spaces = thread.interrupts[0]["namespace"]
            root = await thread._send_command("state.get", {"namespace": []})
            deep = await thread._send_command("state.get", {"namespace": spaces})
            listed = await thread._send_command("state.listCheckpoints", {"namespace": spaces, "limit": 2})
            state = await client.threads.get_state(thread.thread_id, checkpoint={"checkpoint_ns": "|".join(spaces), "checkpoint_id": deep["checkpoint"]["id"]})
            return root, deep, listed, state

    root, deep, listed, state = run(go())
    assert deep["values"] == state["values"]
    assert deep["checkpoint"]["ns"] == state["checkpoint"]["checkpoint_ns"]
    assert listed["checkpoints"][0]["id"] == deep["checkpoint"]["id"]
    assert root["values"]["trail"] == ["before"]


def test_a_late_reader_gets_the_changed_words():
    tid = event_streaming.new_id()
    first = event_streaming.Stream(tid, {"channels": ["lifecycle", "messages", "custom"]})
    event_streaming.command(tid, "run.start", {"assistant_id": "masked", "input": {"messages": [{"role": "user", "content": "say 4"}]}})
    first.wait_terminal()
    late = event_streaming.Stream(tid, {"channels": ["lifecycle", "messages", "custom"]})
    late.wait_terminal()
    shown = [[e["params"]["data"] for e in s.events if e["method"] != "lifecycle"] for s in (first, late)]
    first.close()
    late.close()
    assert shown[0] == shown[1] and " w2" not in str(shown[1]).replace("whole w2", "")
