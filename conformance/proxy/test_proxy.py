"""What only a proxy can get wrong: who sees what, being killed, being gone around, and being one of two."""
from __future__ import annotations

import concurrent.futures
import json
import random
import subprocess
import time
import uuid

import httpx
import pytest

from conftest import BINARY, environment


def say(n):
    return {"assistant_id": "summarizing", "input": {"messages": [{"role": "user", "content": f"say {n}"}]}}


def talk(c, thread, *turns):
    for n in turns:
        assert c.post(f"/threads/{thread}/runs/wait", json=say(n)).status_code == 200


def words(n):
    return " ".join(f"w{i}" for i in range(n))


def conversation(*turns):
    return [pair for n in turns for pair in (("human", f"say {n}"), ("ai", words(n)))]


def new_thread(c, **body):
    made = c.post("/threads", json=body)
    assert made.status_code == 200, made.text
    return made.json()["thread_id"]


def rows(c, thread, what="messages"):
    """All rows, page by page. Nothing is given twice, and nothing is skipped."""
    found, after = [], 0
    while True:
        page = c.get(f"/threads/{thread}/{what}", params={"limit": 7, "after_seq": after})
        assert page.status_code == 200, page.text
        body = page.json()
        found += body["data"]
        if not body["has_more"]:
            break
        after = found[-1]["seq"]
    assert len({r["seq"] for r in found}) == len(found)
    if what == "events":
        assert [r["seq"] for r in found] == list(range(1, len(found) + 1)), "no gap"
    return found


def people(found):
    messages = [r["content"] for r in found if r["category"] == "message"]
    assert len({m["id"] for m in messages}) == len(messages)
    return [(m["type"], m["content"]) for m in messages]


def shown(state):
    return [(m["type"], m["content"]) for m in state["values"]["messages"] if not m["id"].startswith("summary-marker-")]


def idle(c, thread):
    deadline = time.monotonic() + 60
    while c.get(f"/threads/{thread}").json()["status"] == "busy":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def own_routes(thread, run):
    return [f"/threads/{thread}/messages", f"/threads/{thread}/events", f"/threads/{thread}/runs/{run}/messages", f"/threads/{thread}/runs/{run}/events"]


# --- who sees what ----------------------------------------------------------------------


def test_nobody_reads_what_is_not_theirs(proxy, direct):
    p = proxy()
    alice, bob, nobody = p.caller("alice"), p.caller("bob"), p.caller(None)
    thread = new_thread(alice)
    talk(alice, thread, 1, 2, 3, 4)
    run = alice.get(f"/threads/{thread}/runs").json()[0]["run_id"]
    assert people(rows(alice, thread)) == conversation(1, 2, 3, 4)
    for path in own_routes(thread, run):
        assert alice.get(path).status_code == 200
        for caller, status in ((bob, 404), (nobody, 401)):
            got = caller.get(path)
            assert got.status_code == status and "detail" in got.json(), path
            # As the upstream itself would say it of the thread.
            assert got.json() == direct("bob" if caller is bob else None).get(f"/threads/{thread}").json()
    for path in (f"/threads/{thread}/state", f"/threads/{thread}/history", f"/threads/{thread}"):
        assert bob.get(path).status_code == 404 and nobody.get(path).status_code == 401
    assert all(t["thread_id"] != thread for t in bob.post("/threads/search", json={"limit": 100}).json())


@pytest.mark.parametrize("around", [False, True], ids=["through the proxy", "around it"])
def test_an_id_that_is_used_again_is_another_thread(proxy, direct, around):
    p = proxy()
    alice, bob = p.caller("alice"), p.caller("bob")
    thread = new_thread(alice)
    talk(alice, thread, 1, 2)
    run = alice.get(f"/threads/{thread}/runs").json()[0]["run_id"]
    assert people(rows(alice, thread)) == conversation(1, 2)
    assert (direct("alice") if around else alice).delete(f"/threads/{thread}").status_code == 204
    if not around:
        assert all(alice.get(path).status_code == 404 for path in own_routes(thread, run))
    assert new_thread(direct("bob") if around else bob, thread_id=thread) == thread
    assert rows(bob, thread) == [] and rows(bob, thread, "events") == []
    assert bob.get(f"/threads/{thread}/runs/{run}/messages").status_code == 404
    assert all(alice.get(path).status_code == 404 for path in own_routes(thread, run))
    talk(bob, thread, 3)
    assert people(rows(bob, thread)) == conversation(3) == shown(bob.get(f"/threads/{thread}/state").json())
    assert "say 1" not in json.dumps(rows(bob, thread, "events"))


def test_offline_reads_are_not_for_an_upstream_with_credentials(upstream, tmp_path):
    done = subprocess.run([BINARY, "proxy", "--upstream", upstream, "--port", "0", "--data", tmp_path, "--offline-reads"], capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 1 and "requires credentials" in done.stderr and "401" in done.stderr, done.stderr


# --- killed, gone around, and one of two --------------------------------------------------


def test_killed_in_mid_stream(proxy):
    p = proxy()
    alice = p.caller("alice")
    thread = new_thread(alice)
    talk(alice, thread, 1, 2, 3)
    for n in (600, 500):  # so many words that the proxy is dead before the last one
        alice = p.caller("alice")
        with pytest.raises(httpx.TransportError), alice.stream("POST", f"/threads/{thread}/runs/stream", json=say(n) | {"stream_mode": ["values", "messages-tuple"]}) as answer:
            for i, _ in enumerate(answer.iter_lines()):
                if i == 50:
                    p.kill()
        p.start()
        alice = p.caller("alice")
        idle(alice, thread)
    assert people(rows(alice, thread)) == conversation(1, 2, 3, 600, 500) == shown(alice.get(f"/threads/{thread}/state").json())
    rows(alice, thread, "events")
    talk(alice, thread, 6)
    assert people(rows(alice, thread)) == conversation(1, 2, 3, 600, 500, 6)


def test_killed_while_catching_up(proxy, direct):
    """A long thread that the proxy never saw, read by somebody who does not get to the end."""
    alice = direct()
    thread = new_thread(alice, metadata={"graph_id": "summarizing"})
    turns = [(f"h{i}", f"a{i}") for i in range(120)]
    for h, a in turns:
        put = alice.post(f"/threads/{thread}/state", json={"values": {"messages": [{"type": "human", "id": h, "content": h}, {"type": "ai", "id": a, "content": a}]}, "as_node": "model"})
        assert put.status_code == 200, put.text
    p = proxy()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for after in (0.02, 0.05, 0.1, 0.2, 0.4):
            reading = pool.submit(p.caller("alice").get, f"/threads/{thread}/messages")
            time.sleep(after * random.uniform(0.5, 1))  # a random moment is the point
            p.kill()
            concurrent.futures.wait([reading], 60)
            p.start()
    alice = p.caller("alice")
    found = rows(alice, thread)
    assert [r["content"]["id"] for r in found] == [i for pair in turns for i in pair]
    assert len(rows(alice, thread, "events")) == len(found)


def test_runs_that_went_around_it_appear(proxy, direct):
    p = proxy()
    alice = p.caller("alice")
    thread = new_thread(alice)
    talk(alice, thread, 1)
    talk(direct(), thread, 2, 3)
    assert people(rows(alice, thread)) == conversation(1, 2, 3)
    p.kill()
    talk(direct(), thread, 4, 5)
    p.start()
    alice = p.caller("alice")
    assert shown(alice.get(f"/threads/{thread}/state").json()) == conversation(1, 2, 3, 4, 5)
    assert people(rows(alice, thread)) == conversation(1, 2, 3, 4, 5)


def test_one_run_through_two_proxies(proxy):
    first, second = proxy("first"), proxy("second")
    thread = new_thread(first.caller("alice"))
    for n in (1, 2, 3, 4):
        run = str(uuid.uuid4())
        with first.caller("alice").stream("POST", f"/threads/{thread}/runs/stream", json=say(n) | {"stream_mode": ["values"], "stream_resumable": True}) as answer:
            run = answer.headers["content-location"].rsplit("/", 1)[1]
            with second.caller("alice").stream("GET", f"/threads/{thread}/runs/{run}/stream", headers={"Last-Event-ID": "-1"}) as joined:
                seen, again = list(answer.iter_lines()), list(joined.iter_lines())
            assert [line for line in seen if line.startswith("data: ")][-1] in again
    for p in (first, second):
        alice = p.caller("alice")
        assert people(rows(alice, thread)) == conversation(1, 2, 3, 4)
        summaries = [r for r in rows(alice, thread, "events") if r["event_type"] == "middleware:summarize"]
        assert len(summaries) == 1
