"""Much at once on one thread, and settings that change under requests: nothing is half done, and nothing is answered with 500."""
import concurrent.futures
import contextlib
import hashlib
import os
import random
import threading
import time

import pytest

from test_gateway import OUT, admin, alice, bare, bob, body, call, docx, frames, fresh_user, install, last_run, new_thread, own, put_file, said, say, skill_md, thread, upload, wait_for, zipped  # noqa: F401  fixtures

SECONDS = 6


def like(c):
    """A client of its own for a thread of this test."""
    n = bare()
    n.cookies.update(c.cookies)
    n.headers["X-CSRF-Token"] = c.cookies["csrf_token"]
    return n


def storm(c, actions, seconds=SECONDS, each=2):
    """Does all actions again and again, each in threads of its own; returns the answers that are no answer."""
    end, bad, count = time.time() + seconds, [], [0]

    def work(action):
        mine = like(c)
        while time.time() < end:
            for r in action(mine):
                count[0] += 1
                if r.status_code >= 500:
                    bad.append((r.request.method, r.request.url.path, r.status_code, r.text[:200]))

    with concurrent.futures.ThreadPoolExecutor(each * len(actions)) as pool:
        for f in [pool.submit(work, a) for a in actions for _ in range(each)]:
            f.result()
    assert count[0] > len(actions)
    return bad


def test_everything_at_once_on_one_thread(alice, thread):
    for n in range(3):
        say(alice, thread, f"SAY {n}")
    put_file(alice, thread, "e.txt", "one")
    t = f"/api/threads/{thread}"
    made = []

    def turn(c):
        yield c.post(f"{t}/runs/wait", json=body(f"SAY {random.random()}", multitask_strategy=random.choice(["reject", "interrupt", "rollback"])))

    def uploads(c):
        yield upload(c, thread, ("a.docx", docx("Theirs")), ("a.md", b"mine"), ("b.txt", b"x" * random.randrange(100_000)))
        yield c.get(f"{t}/uploads/list")
        yield c.delete(f"{t}/uploads/{random.choice(['a.docx', 'a.md', 'b.txt'])}")

    def branches(c):
        rows = c.get(f"{t}/messages/page", params={"limit": 200})
        yield rows
        ai = [r["content"]["id"] for r in rows.json()["data"] if r["content"]["type"] == "ai"]
        if ai:
            r = c.post(f"{t}/branches", json={"message_id": random.choice(ai)})
            yield r
            if r.status_code == 200:
                made.append(r.json()["thread_id"])
        r = c.post("/api/commands/fork-thread", json={"source_thread_id": thread, "event_number": random.choice(rows.json()["data"] or [{"seq": 1}])["seq"]})
        yield r
        if r.status_code == 200:
            made.append(r.json().get("thread_id") or r.json().get("new_thread_id"))

    def states(c):
        yield c.post(f"{t}/state", json={"values": {"title": str(random.random())}})
        yield c.get(f"{t}/state")
        yield c.post(f"{t}/history", json={"limit": 5})
        yield c.put(f"{t}/goal", json={"objective": "x"})
        yield c.post(f"{t}/compact", json={"force": True, "keep": {"type": "messages", "value": 2}})
        yield c.patch(t, json={"metadata": {"n": random.random()}})

    def edits(c):
        rows = c.get(f"{t}/messages/page", params={"limit": 200}).json()["data"]
        for kind, path, key in (("ai", "regenerate", "message_id"), ("human", "edit-regenerate", "human_message_id")):
            ids = [r["content"]["id"] for r in rows if r["content"]["type"] == kind]
            if not ids:
                continue
            r = c.post(f"{t}/runs/{path}/prepare", json={key: ids[-1], "replacement_text": "SAY edited"})
            yield r
            if r.status_code == 200:
                p = r.json()
                yield c.post(f"{t}/runs/wait", json={"assistant_id": "lead_agent", "input": p["input"], "checkpoint": p["checkpoint"], "metadata": p["metadata"]})
        r = c.get(f"{t}/artifacts{OUT}/e.txt")
        yield r
        yield c.put(f"{t}/artifacts{OUT}/e.txt", json={"content": str(random.random()), "expected_sha256": hashlib.sha256(r.content).hexdigest()})

    def feedback(c):
        runs = c.get(f"{t}/runs")
        yield runs
        for x in runs.json()[:3]:
            yield c.put(f"{t}/runs/{x['run_id']}/feedback", json={"rating": random.choice([1, -1])})
            yield c.post(f"{t}/runs/{x['run_id']}/cancel", params={"action": random.choice(["interrupt", "rollback"])})
        yield c.get(f"{t}/token-usage")

    assert storm(alice, [turn, uploads, branches, states, edits, feedback]) == []
    # Nothing is left over, and what is there is whole.
    assert wait_for(lambda: alice.get(t).json()["status"] in ("idle", "error", "interrupted"))
    rows = alice.get(f"{t}/messages/page", params={"limit": 200}).json()["data"]
    ids = [r["content"]["id"] for r in rows if r["content"]["type"] == "ai"]
    assert len(ids) == len(set(ids))
    assert [r["seq"] for r in rows] == sorted({r["seq"] for r in rows})
    assert said(say(alice, thread, "SAY at last")["messages"][-1]) == "at last"
    for b in made[:10]:
        if alice.get(f"/api/threads/{b}").status_code == 200:
            assert said(say(alice, b, "SAY in a branch")["messages"][-1]) == "in a branch"
    names = {f["filename"] for f in alice.get(f"{t}/uploads/list").json()["files"]}
    assert names <= {"a.docx", "a.md", "a_1.md", "b.txt"}, names


def test_threads_that_are_deleted_while_they_are_used(alice):
    """What is deleted is gone, with its files, whatever came in between."""
    name = f"del-{random.randrange(10**9)}"
    t = f"/api/threads/{name}"

    def make(c):
        yield c.post("/api/threads", json={"thread_id": name})
        yield c.post(f"{t}/runs/wait", json=body("SAY x"))

    def uploads(c):
        yield upload(c, name, ("a.txt", b"x" * 10_000), ("d.docx", docx("x")))

    def goals(c):
        yield c.put(f"{t}/goal", json={"objective": "x"})
        yield c.get(f"{t}/messages")
        yield c.post("/api/runs/wait", json=body("SAY y", config={"configurable": {"thread_id": name}}))

    def delete(c):
        yield c.delete(t)
        time.sleep(0.02)

    def branch(c):
        rows = c.get(f"{t}/messages").json()
        ai = [r["content"]["id"] for r in rows if r["content"]["type"] == "ai"]
        if ai:
            yield c.post(f"{t}/branches", json={"message_id": ai[-1]})
        yield c.get(f"{t}/state")

    assert storm(alice, [make, uploads, goals, delete, branch]) == []
    new_thread(alice, thread_id=name)  # files of a last upload become its own
    assert wait_for(lambda: alice.delete(t).status_code == 200), (alice.get(t).text, alice.get(f"{t}/runs").text)
    assert alice.get(t).status_code == 404 and alice.get(f"{t}/messages").json() == [] and alice.get(f"{t}/uploads/list").json()["count"] == 0
    folder = os.path.join(os.path.dirname(os.environ.get("GATEWAY_CONFIG", "/nowhere/x")), "users", alice.me["id"], "threads", name)
    assert wait_for(lambda: not os.path.exists(folder)), os.listdir(folder)


def test_memory_agents_and_skills_at_once(admin, own):
    def facts(c):
        r = c.post("/api/memory/facts", json={"content": str(random.random())})
        yield r
        if r.status_code == 200:
            yield c.delete(f"/api/memory/facts/{random.choice(r.json()['facts'])['id']}")

    def agents(c):
        name = f"a{random.randrange(3)}"
        yield c.post("/api/agents", json={"name": name, "soul": "s" * 1000})
        yield c.put(f"/api/agents/{name}", json={"description": str(random.random())})
        yield c.get(f"/api/agents/{name}")
        yield c.delete(f"/api/agents/{name}")

    def profile(c):
        yield c.put("/api/user-profile", json={"content": "x" * random.randrange(10_000)})
        yield c.get("/api/user-profile")
        yield c.get("/api/memory/export")
        yield c.post("/api/memory/import", json=c.get("/api/memory/export").json())

    assert storm(own, [facts, agents, profile], 4) == []
    assert own.get("/api/memory").status_code == 200 and own.get("/api/agents").status_code == 200


@pytest.fixture
def settings():
    """Both files of settings; they are put back."""
    path = os.environ.get("GATEWAY_CONFIG")
    if not path:
        pytest.skip("GATEWAY_CONFIG is not set")
    files = {p: open(p).read() for p in (path, os.path.join(os.path.dirname(path), "extensions_config.json"))}
    yield list(files)
    for p, text in files.items():
        if os.path.isdir(p):
            os.rmdir(p)
        if os.path.islink(p) or os.path.exists(p) and not os.path.isfile(p):
            os.unlink(p)
        with open(p, "w") as f:
            f.write(text)


def test_settings_that_change_under_requests(admin, alice, settings):
    """What is half written, missing, a folder, a pipe or not to be read makes requests that need it 503; streams go on, and the next whole file counts at once."""
    config, extensions = settings
    good = {p: open(p).read() for p in settings}
    stop = threading.Event()
    running = new_thread(alice)
    stream = {}

    def follow():
        stream["text"] = like(alice).post(f"/api/threads/{running}/runs/stream", json=body("SLOW 120", stream_mode=["messages-tuple"])).text

    def damage():
        while not stop.is_set():
            for p in settings:
                kind = random.randrange(7)
                with contextlib.suppress(OSError):
                    if kind == 0:
                        open(p, "w").write(good[p][: random.randrange(len(good[p]))])
                    elif kind == 1:
                        open(p, "w").close()
                    elif kind == 2:
                        open(p, "wb").write(random.randbytes(200))
                    elif kind == 3:
                        os.unlink(p)
                    elif kind == 4:
                        os.unlink(p)
                        os.mkdir(p)
                    elif kind == 5:
                        os.unlink(p)
                        os.mkfifo(p)
                    elif kind == 6:
                        os.unlink(p)
                        os.symlink(p, p)
                time.sleep(0.02)
                if os.path.isdir(p):
                    os.rmdir(p)
                with open(p + ".new", "w") as f:
                    f.write(good[p])
                os.replace(p + ".new", p)
            time.sleep(0.01)

    follower, breaker = threading.Thread(target=follow), threading.Thread(target=damage)
    follower.start()
    wait_for(lambda: alice.get(f"/api/threads/{running}/runs").json())
    breaker.start()
    t = new_thread(alice)
    seen = set()

    def reads(c):
        for path in ("/api/models", f"/api/threads/{t}/uploads/limits", "/api/skills", "/api/features", "/api/agents", "/api/memory/config", "/api/mcp/config", f"/api/threads/{t}/state", "/api/suggestions/config"):
            yield c.get(path)

    def runs(c):
        yield c.post(f"/api/threads/{new_thread(c)}/runs/wait", json=body("SAY x"))
        yield upload(c, t, ("a.txt", b"x"))

    def switches(c):
        yield c.put("/api/skills/demo-skill", json={"enabled": random.choice([True, False])})
        yield c.patch("/api/mcp/config", json={"server_name": "none", "enabled": False})

    try:
        bad = storm(alice, [reads, runs], 5) + storm(admin, [switches, reads], 4)
    finally:
        stop.set()
        breaker.join()
        follower.join()
    seen = {(b[1].replace(t, "T"), b[2]) for b in bad}
    assert {s for _, s in seen} <= {503}, [b for b in bad if b[2] != 503][:5]
    f = frames(stream["text"])
    assert f[-1]["event"] == "end" and sum(x["event"] == "messages" for x in f) > 100
    assert alice.get("/api/models").status_code == 200 and said(say(alice, t, "SAY fine")["messages"][-1]) == "fine"
