"""Conversations as a tree: fork at an event, send a message; branches are forks. Ours, not the Gateway's."""
import pytest

from test_gateway import admin, alice, bob, call, internal, last_run, said, say, thread, wait_for  # noqa: F401  fixtures

pytestmark = pytest.mark.harness


def feed(c, t):
    return c.get(f"/api/threads/{t}/messages/page", params={"limit": 200}).json()["data"]


def texts(c, t):
    return [said(r["content"]) for r in feed(c, t)]


def fork(c, t, n):
    r = c.post("/api/commands/fork-thread", json={"source_thread_id": t, "event_number": n})
    assert r.status_code == 200, r.text
    d = r.json()
    assert set(d) == {"thread_id", "source_thread_id", "event_number", "checkpoint_id", "created_at"}
    assert (d["source_thread_id"], d["event_number"]) == (t, n)
    return d["thread_id"]


def test_a_fork_continues_from_any_message(alice, thread):
    for n in range(3):
        say(alice, thread, f"SAY {n}")
    rows = feed(alice, thread)
    for i, row in enumerate(rows):
        f = fork(alice, thread, row["seq"])
        mine = feed(alice, f)
        assert [(r["seq"], r["content"]["id"], said(r["content"])) for r in mine] == [(r["seq"], r["content"]["id"], said(r["content"])) for r in rows[:i + 1]]
        v = say(alice, f, "SAY mine")
        assert texts(alice, f) == [said(r["content"]) for r in rows[:i + 1]] + ["SAY mine", "mine"]
        assert [said(m) for m in v["messages"]] == texts(alice, f)
    assert texts(alice, thread) == [said(r["content"]) for r in rows]
    # A fork of a fork, with events of both; then their sources go.
    f = fork(alice, thread, rows[3]["seq"])
    say(alice, f, "SAY mine")
    g = fork(alice, f, feed(alice, f)[4]["seq"])
    assert alice.delete(f"/api/threads/{thread}").status_code == 200
    assert alice.delete(f"/api/threads/{f}").status_code == 200
    assert texts(alice, g) == ["SAY 0", "0", "SAY 1", "1", "SAY mine"]
    say(alice, g, "SAY other")
    assert texts(alice, g) == ["SAY 0", "0", "SAY 1", "1", "SAY mine", "SAY other", "other"]


def test_turns_of_a_branch_are_turns(alice, thread):
    say(alice, thread, "SAY first")
    v = say(alice, thread, "SAY second")
    b = alice.post(f"/api/threads/{thread}/branches", json={"message_id": v["messages"][-1]["id"]}).json()["thread_id"]
    answer = feed(alice, b)[1]["content"]["id"]
    assert alice.post(f"/api/threads/{b}/runs/regenerate/prepare", json={"message_id": answer}).status_code == 200
    inner = alice.post(f"/api/threads/{b}/branches", json={"message_id": answer, "title": "Inner"}).json()
    assert texts(alice, inner["thread_id"]) == ["SAY first", "first"]
    assert alice.get(f"/api/threads/{inner['thread_id']}").json()["values"]["title"] == "Inner"
    assert alice.get(f"/api/threads/{b}").json()["metadata"]["branch_parent_thread_id"] == thread


def test_forks_leave_out_what_belongs_to_their_source(alice, thread):
    say(alice, thread, "SAY x")
    alice.put(f"/api/threads/{thread}/goal", json={"objective": "win"})
    rows = alice.get(f"/api/threads/{thread}/messages/page").json()["data"]
    f = fork(alice, thread, rows[-1]["seq"])
    assert alice.get(f"/api/threads/{f}/goal").json() == {"goal": None}
    assert "thread_data" not in alice.get(f"/api/threads/{f}/state").json()["values"]
    assert alice.get(f"/api/threads/{f}/runs").json() == []


def test_what_cannot_be_forked(alice, bob, internal, thread):
    say(alice, thread, "SAY x")
    seq = feed(alice, thread)[0]["seq"]
    for c, t in ((alice, "unknown"), (bob, thread), (internal, thread)):
        r = c.post("/api/commands/fork-thread", json={"source_thread_id": t, "event_number": seq})
        assert (r.status_code, r.json()) == (404, {"detail": f"Thread {t} not found"})
    for body in ({}, {"source_thread_id": thread}, {"source_thread_id": thread, "event_number": None}, {"source_thread_id": thread, "event_number": 0}, {"source_thread_id": thread, "event_number": 1 << 70},
                 {"source_thread_id": thread, "event_number": "x"}, {"source_thread_id": "../x", "event_number": 1}, {"source_thread_id": thread, "event_number": 10000}):
        assert alice.post("/api/commands/fork-thread", json=body).status_code == 422, body
    step = call([("write_file", {"description": "w", "path": f"/mnt/user-data/workspace/{n}", "content": "x"}) for n in "ab"])
    say(alice, thread, step)
    tools = [r["seq"] for r in feed(alice, thread) if r["content"]["type"] == "tool"]
    codes = [alice.post("/api/commands/fork-thread", json={"source_thread_id": thread, "event_number": n}) for n in tools]
    assert [r.status_code for r in codes] == [422, 200] and f"event {tools[1]}" in codes[0].json()["detail"]


def test_send_message(alice, bob, thread):
    r = alice.post("/api/commands/send-message", json={"thread_id": thread, "message": "SAY one"})
    assert r.status_code == 200 and r.json()["thread_id"] == thread, r.text
    two = alice.post("/api/commands/send-message", json={"thread_id": thread, "message": {"type": "human", "content": [{"type": "text", "text": "SAY two"}], "id": "m2"}}).json()
    assert two["message_id"] == "m2"
    assert r.headers["content-location"] == f"/api/threads/{thread}/runs/{r.json()['run_id']}"
    assert wait_for(lambda: texts(alice, thread) == ["SAY one", "one", "SAY two", "two"])
    assert last_run(alice, thread)["run_id"] == two["run_id"]
    assert r.json()["message_id"] in [x["content"]["id"].removesuffix("__user") for x in feed(alice, thread)]
    f = fork(alice, thread, feed(alice, thread)[1]["seq"])
    alice.post("/api/commands/send-message", json={"thread_id": f, "message": "SAY three"})
    assert wait_for(lambda: texts(alice, f) == ["SAY one", "one", "SAY three", "three"])
    assert bob.post("/api/commands/send-message", json={"thread_id": thread, "message": "x"}).json() == {"detail": f"Thread {thread} not found"}
    for body in ({}, {"thread_id": thread}, {"thread_id": thread, "message": ""}, {"thread_id": thread, "message": {}}, {"thread_id": thread, "message": {"type": "ai", "content": "x"}}, {"thread_id": thread, "message": 1},
                 {"thread_id": thread, "message": {"content": "x", "id": 5}}, {"thread_id": thread, "message": {"content": "x", "type": []}},
                 {"thread_id": thread, "message": "x", "config": 1}):
        assert alice.post("/api/commands/send-message", json=body).status_code == 422, body
