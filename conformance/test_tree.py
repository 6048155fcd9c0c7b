"""Conversations as a tree: fork a thread at an event, send a message. The routes are ours.

Needs the graph `summarizing`, as test_overlay.py.
"""
import os

import pytest
from conftest import NO_SUCH
from helpers import until

pytestmark = pytest.mark.skipif(os.environ.get("REAL") == "1", reason="ours")
GRAPH = "summarizing"


def say(n):
    return {"messages": [{"role": "user", "content": f"say {n}"}]}


async def messages(http, t):
    rows = (await http.get(f"/threads/{t}/messages", params={"limit": 1000})).json()["data"]
    return [(r["seq"], r["event_type"], r["content"].get("content")) for r in rows]


async def fork(http, t, n):
    r = await http.post("/commands/fork-thread", json={"source_thread_id": t, "event_number": n})
    assert r.status_code == 200, r.text
    return r.json()["thread_id"]


async def test_fork_of_a_condensed_conversation(client, http, thread):
    for n in range(1, 6):
        await client.runs.wait(thread, GRAPH, input=say(n))
    rows = await messages(http, thread)
    assert [text for _, kind, text in rows if kind != "middleware:summarize"] == [x for n in range(1, 6) for x in (f"say {n}", " ".join(f"w{i}" for i in range(n)))]
    answers = [seq for seq, kind, _ in rows if kind == "llm.ai.response"]
    markers = [seq for seq, kind, _ in rows if kind == "middleware:summarize"]
    assert markers
    for seq in answers:
        f = await fork(http, thread, seq)
        want = [r for r in rows if r[0] <= seq]
        assert await messages(http, f) == want
        seen = [m for m in (await client.threads.get_state(f))["values"]["messages"] if not m["id"].startswith("summary-marker-")]
        assert [m["content"] for m in seen] == [text for _, kind, text in want if kind != "middleware:summarize"]
        await client.runs.wait(f, GRAPH, input=say(7))
        assert [text for _, kind, text in await messages(http, f) if kind != "middleware:summarize"][-2:] == ["say 7", "w0 w1 w2 w3 w4 w5 w6"]
    g = await fork(http, f, (await messages(http, f))[-1][0])
    want = await messages(http, f)
    await client.threads.delete(thread)
    await client.threads.delete(f)
    assert await messages(http, g) == want
    log = (await http.get(f"/threads/{g}/events", params={"event_types": "thread.fork"})).json()["data"]
    assert [e["content"]["source_thread_id"] for e in log] == [thread, f]


async def test_the_question_of_a_fork_is_answered_anew(client, http, thread):
    await client.runs.wait(thread, GRAPH, input=say(3))
    f = await fork(http, thread, (await messages(http, thread))[0][0])
    assert (await client.threads.get_state(f))["next"]
    await client.runs.wait(f, GRAPH, input=None)
    assert [text for _, _, text in await messages(http, f)] == ["say 3", "w0 w1 w2"]
    runs = {r["run_id"] for r in (await http.get(f"/threads/{f}/messages")).json()["data"]}
    assert len(runs) == 2


async def test_a_waiting_thread_is_forked_with_its_question(client, http, thread):
    await client.runs.wait(thread, "pipeline", input={"topic": "a"})
    state = await client.threads.get_state(thread)
    last = (await http.get(f"/threads/{thread}/events", params={"limit": 1000})).json()["data"][-1]["seq"]
    f = await fork(http, thread, last)
    assert [t["interrupts"] for t in (await client.threads.get_state(f))["tasks"]] == [t["interrupts"] for t in state["tasks"]]
    assert (await client.runs.wait(f, "pipeline", command={"resume": "yes"}))["answer"] == "yes"
    g = await fork(http, thread, last)  # also when the source went on meanwhile
    await client.runs.wait(thread, "pipeline", command={"resume": "no"})
    assert (await client.runs.wait(g, "pipeline", command={"resume": "yes"}))["answer"] == "yes"
    h = await fork(http, thread, last)
    assert [len(t["interrupts"]) for t in (await client.threads.get_state(h))["tasks"]] == [1]
    assert (await client.runs.wait(h, "pipeline", command={"resume": "maybe"}))["answer"] == "maybe"


async def test_what_cannot_be_forked(client, http, thread):
    await client.runs.wait(thread, GRAPH, input=say(1))
    for t in (NO_SUCH, thread):
        r = await http.post("/commands/fork-thread", json={"source_thread_id": t, "event_number": 1000})
        assert r.status_code == (404 if t == NO_SUCH else 422), r.text
    for body in ({}, {"source_thread_id": "x", "event_number": 1}, {"source_thread_id": thread, "event_number": 0}, {"source_thread_id": thread, "event_number": 1.5}, [], None):
        assert (await http.post("/commands/fork-thread", json=body)).status_code == 422, body


async def test_send_message(client, http, thread):
    first = await http.post("/commands/send-message", json={"thread_id": thread, "message": "say 1"})
    assert first.status_code == 404 and "assistant_id" in first.json()["detail"]
    sent = [(await http.post("/commands/send-message", json={"thread_id": thread, "message": "say 1", "assistant_id": GRAPH})).json()]
    sent.append((await http.post("/commands/send-message", json={"thread_id": thread, "message": {"type": "human", "content": "say 2", "id": "mine"}})).json())
    assert sent[1]["message_id"] == "mine" and sent[0]["status"] == "pending"

    async def answered():
        return len(await messages(http, thread)) == 4
    await until(answered)
    rows = (await http.get(f"/threads/{thread}/messages")).json()["data"]
    assert [(r["content"]["id"], r["run_id"]) for r in rows if r["event_type"] == "llm.human.input"] == [(s["message_id"], s["run_id"]) for s in sent]
    for body in ({"thread_id": thread}, {"thread_id": thread, "message": ""}, {"thread_id": thread, "message": {"type": "ai", "content": "x"}}, {"thread_id": thread, "message": {"content": []}}):
        assert (await http.post("/commands/send-message", json=body)).status_code == 422, body
    assert (await http.post("/commands/send-message", json={"thread_id": NO_SUCH, "message": "x", "assistant_id": GRAPH})).status_code == 404
