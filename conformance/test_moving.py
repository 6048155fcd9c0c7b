"""Moving in and out: threads of Python's savers go on here, threads from here go on with Python's savers, and those of a server go on too.

These tests start servers and databases of their own; the server under test is not used.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid

import pytest
from langgraph.types import Command
from langgraph_sdk import get_client

import moving
from databases import initdb, postgres
from moving import Database, Folder, langgraph_server, move, proxy, savers, understudy, with_saver


@pytest.fixture(scope="module")
def new_database():
    if initdb() is None:
        if os.environ.get("CI"):
            pytest.fail("Postgres is missing")
        pytest.skip("POSTGRES IS MISSING, moving is not tested with it; on Debian: apt-get install postgresql")
    with postgres() as make:
        yield make


@pytest.fixture
def where(kind, tmp_path, request):
    """The address of an empty database."""
    if kind == "sqlite":
        return str(tmp_path / "checkpoints.sqlite")
    return request.getfixturevalue("new_database")()


@pytest.fixture
def data(tmp_path):
    """Where a server of ours keeps everything."""
    return Folder(tmp_path / "data")


@pytest.fixture
def database(tmp_path, new_database):
    return Database(new_database(), tmp_path / "database")


@pytest.fixture(params=["folder", "database"])
def home(request):
    return request.getfixturevalue("data" if request.param == "folder" else "database")


# From or to whose tables, and into or out of what of ours: each with each in Go, the likely ones here.
pairs = pytest.mark.parametrize("kind, home", [("sqlite", "folder"), ("postgres", "folder"), ("postgres", "database")], indirect=["home"])


def at(thread: str, graph: str | None = None) -> dict:
    return {"configurable": {"thread_id": thread}} | ({"metadata": {"graph_id": graph}} if graph else {})


def told(messages) -> list[tuple]:
    """What a person would say of messages, of objects and of JSON."""
    out = []
    for m in messages:
        m = m if isinstance(m, dict) else m.model_dump()
        out.append((m["type"], m["content"], m["id"], [(c["name"], c["args"]) for c in m.get("tool_calls") or []]))
    return out


def texts(messages) -> list[str]:
    return [m["content"] for m in messages]


def human(text: str) -> dict:
    return {"messages": [{"type": "human", "content": text}]}


async def make_threads(saver, store):
    """What somebody has who ran graphs with a saver of Python: by name of the graph, the thread."""
    threads = {name: str(uuid.uuid4()) for name in ("agent", "summarizing", "hitl", "nested")} | {"pipeline": "user 42/pipeline"}
    agent = with_saver("agent", saver)
    for text in ("say 2", 'call search {"q": "x"}', "say 3"):
        agent.invoke(human(text), at(threads["agent"], "agent"))
    agent.update_state(at(threads["agent"], "agent"), human("by hand"))
    summarizing = with_saver("summarizing", saver)
    for i in range(6):
        summarizing.invoke(human(f"say {i + 2}"), at(threads["summarizing"], "summarizing"))
    with_saver("hitl", saver).invoke(human('call search {"q": "x"}'), at(threads["hitl"], "hitl"))
    with_saver("nested", saver).invoke({"value": "v"}, at(threads["nested"], "nested"))
    pipeline = with_saver("pipeline", saver)
    pipeline.nodes["work"].bound.func = pipeline.nodes["work"].bound.func or (lambda state: {"items": [state["topic"]]})
    pipeline.invoke({"topic": "t"}, at(threads["pipeline"]))
    store.put(("users", "42"), "likes", {"food": ["figs"], "n": 1.5})
    store.put(("users",), "soon gone", {"x": 1}, ttl=60)
    return threads


@pairs
async def test_moving_in(kind, where, home):
    with savers(kind, where) as (saver, store):
        threads = await make_threads(saver, store)
        before = {name: with_saver(name, saver).get_state(at(t)) for name, t in threads.items()}
        lengths = {name: len(list(with_saver(name, saver).get_state_history(at(t)))) for name, t in threads.items()}
    out = move("import", "--from", where, *home.flags)
    assert "the graph of 1 threads is not known" in out and threads["pipeline"] in out
    out = move("import", "--from", where, *home.flags, "--graph", "pipeline")
    assert "threads      1 moved, 4 were there" in out
    out = move("import", "--from", where, *home.flags, "--graph", "pipeline")
    assert "nothing to do: everything was there" in out

    with understudy(home) as url:
        client = get_client(url=url)
        rows = {r["metadata"]["graph_id"]: r for r in await client.threads.search(limit=100)}
        assert set(rows) == set(threads)
        assert rows["pipeline"]["metadata"]["original_thread_id"] == threads["pipeline"]
        ids = threads | {"pipeline": rows["pipeline"]["thread_id"]}
        assert rows["pipeline"]["thread_id"] == str(uuid.uuid5(uuid.NAMESPACE_OID, threads["pipeline"]))
        assert {name: r["status"] for name, r in rows.items()} == {name: "interrupted" if s.next else "idle" for name, s in before.items()}
        assert rows["pipeline"]["interrupts"] and rows["hitl"]["interrupts"]
        for name, thread in ids.items():
            state = await client.threads.get_state(thread)
            assert state["next"] == list(before[name].next), name
            assert len(await client.threads.get_history(thread, limit=1000)) == lengths[name], name
            if "messages" in before[name].values and name != "summarizing":
                assert told(state["values"]["messages"]) == told(before[name].values["messages"]), name

        # What the summarizer had condensed before the move is there again.
        state = await client.threads.get_state(ids["summarizing"])
        assert [t for t in texts(state["values"]["messages"]) if t.startswith("say ")] == [f"say {i + 2}" for i in range(6)]
        assert any("summary_marker" in m["additional_kwargs"] for m in state["values"]["messages"])
        got = await client.runs.wait(ids["summarizing"], "summarizing", input=human("say 1"))
        assert got["messages"][-1]["content"] == "w0"

        got = await client.runs.wait(ids["agent"], "agent", input=human("say 2"))
        assert texts(got["messages"])[-3:] == ["by hand", "say 2", "w0 w1"]
        got = await client.runs.wait(ids["hitl"], "hitl", command={"resume": {"decisions": [{"type": "approve"}]}})
        assert texts(got["messages"])[-1] == "tool said: Found 10 results for x"
        got = await client.runs.wait(ids["nested"], "nested", command={"resume": "answer"})
        assert got == {"value": "answer", "trail": ["before", "before", "prepared", "leaf", "after"]} or got["trail"][-1] == "after"
        got = await client.runs.wait(ids["pipeline"], "pipeline", command={"resume": "yes"})
        assert got["answer"] == "yes" and got["items"] == ["t", "t-0", "t-1", "t-2"]

        assert (await client.store.get_item(["users", "42"], "likes"))["value"] == {"food": ["figs"], "n": 1.5}
        assert (await client.store.get_item(["users"], "soon gone"))["value"] == {"x": 1}

    # What went on here is left as it is.
    assert "nothing to do" in move("import", "--from", where, *home.flags, "--graph", "pipeline")


@pairs
async def test_moving_out(kind, where, home):
    with understudy(home) as url:
        client = get_client(url=url)
        ids = {}
        for name in ("agent", "summarizing", "hitl", "nested", "pipeline"):
            ids[name] = (await client.threads.create())["thread_id"]
        for text in ("say 2", 'call search {"q": "x"}'):
            await client.runs.wait(ids["agent"], "agent", input=human(text))
        for i in range(6):
            await client.runs.wait(ids["summarizing"], "summarizing", input=human(f"say {i + 2}"))
        await client.runs.wait(ids["hitl"], "hitl", input=human('call search {"q": "x"}'))
        await client.runs.wait(ids["nested"], "nested", input={"value": "v"})
        await client.runs.wait(ids["pipeline"], "pipeline", input={"topic": "t"})
        await client.store.put_item(["users", "42"], "likes", {"food": ["figs"]})
        states = {name: await client.http.get(f"/threads/{t}/state", params={"overlay": "false"}) for name, t in ids.items()}
        histories = {name: await client.threads.get_history(t, limit=1000) for name, t in ids.items()}
    move("export", "--to", where, *home.flags)
    assert "nothing to do" in move("export", "--to", where, *home.flags)

    with savers(kind, where) as (saver, store):
        for name, thread in ids.items():
            graph = with_saver(name, saver)
            state = graph.get_state(at(thread))
            assert list(state.next) == states[name]["next"], name
            assert state.config["configurable"]["checkpoint_id"] == states[name]["checkpoint"]["checkpoint_id"]
            if "messages" in state.values:
                assert told(state.values["messages"]) == told(states[name]["values"]["messages"])
            else:
                assert state.values == states[name]["values"]
            assert [s.config["configurable"]["checkpoint_id"] for s in graph.get_state_history(at(thread))] == [
                s["checkpoint"]["checkpoint_id"] for s in histories[name]]
        got = with_saver("agent", saver).invoke(human("say 1"), at(ids["agent"]))
        assert got["messages"][-1].content == "w0"
        got = with_saver("hitl", saver).invoke(Command(resume={"decisions": [{"type": "approve"}]}), at(ids["hitl"]))
        assert got["messages"][-1].content == "tool said: Found 10 results for x"
        got = with_saver("nested", saver).invoke(Command(resume="answer"), at(ids["nested"]))
        assert got["value"] == "answer" and got["trail"][-1] == "after"
        got = with_saver("pipeline", saver).invoke(Command(resume="yes"), at(ids["pipeline"]))
        assert got["answer"] == "yes"
        graph = with_saver("agent", saver)
        config = graph.update_state(at(ids["agent"]), human("by hand"))
        assert graph.get_state(config).values["messages"][-1].content == "by hand"
        old = list(graph.get_state_history(at(ids["agent"])))[-3]
        assert graph.invoke(None, old.config)["messages"][0].content == "say 2"
        assert store.get(("users", "42"), "likes").value == {"food": ["figs"]}

    # And back again: what Python's savers added comes along.
    assert "threads      4 moved, 1 were there" in move("import", "--from", where, *home.flags)
    with understudy(home) as url:
        state = await get_client(url=url).threads.get_state(ids["pipeline"])
        assert state["next"] == [] and state["values"]["answer"] == "yes"


async def test_from_a_server(tmp_path, data, database):
    with langgraph_server(tmp_path) as source:
        client = get_client(url=source)
        ids = {}
        for name in ("agent", "summarizing", "hitl", "nested", "pipeline", "empty"):
            ids[name] = (await client.threads.create(metadata={"name": name}))["thread_id"]
        for text in ("say 2", 'call search {"q": "x"}'):
            await client.runs.wait(ids["agent"], "agent", input=human(text))
        for i in range(6):
            await client.runs.wait(ids["summarizing"], "summarizing", input=human(f"say {i + 2}"))
        await client.runs.wait(ids["hitl"], "hitl", input=human('call search {"q": "x"}'))
        await client.runs.wait(ids["nested"], "nested", input={"value": "v"})
        await client.runs.wait(ids["pipeline"], "pipeline", input={"topic": "t"})
        assistant = await client.assistants.create("agent", name="mine", config={"configurable": {"x": 1}})
        await client.assistants.update(assistant["assistant_id"], name="mine too")
        await client.store.put_item(["users", "42"], "likes", {"food": ["figs"]})
        before = {name: await client.threads.get_state(t) for name, t in ids.items()}
        histories = {name: await client.threads.get_history(t, limit=1000) for name, t in ids.items()}
        out = move("import", "--from", source, *data.flags)
        assert "threads      6 moved, 0 were there" in out and "assistants   1 moved" in out
        assert "nothing to do" in move("import", "--from", source, *data.flags)
        assert digest(move("import", "--from", source, *database.flags)) == digest(out)
        assert "store items  0 moved, 1 were there" in move("import", "--from", source, *data.flags)

    with understudy(data) as url:
        client = get_client(url=url)
        for name, thread in ids.items():
            row = await client.threads.get(thread)
            assert row["metadata"]["name"] == name
            state = await client.http.get(f"/threads/{thread}/state", params={"overlay": "false"})
            assert state["next"] == before[name]["next"], name
            assert state["values"] == before[name]["values"], name
            assert state["interrupts"] == before[name]["interrupts"], name
            history = await client.http.post(f"/threads/{thread}/history?overlay=false", json={"limit": 1000})
            assert [(s["checkpoint"], s["parent_checkpoint"], s["next"], s["values"], [t["id"] for t in s["tasks"]]) for s in history] == [
                (s["checkpoint"], s["parent_checkpoint"], s["next"], s["values"], [t["id"] for t in s["tasks"]]) for s in histories[name]], name
        state = await client.threads.get_state(ids["summarizing"])
        assert [t for t in texts(state["values"]["messages"]) if t.startswith("say ")] == [f"say {i + 2}" for i in range(6)]
        mine = await client.assistants.get(assistant["assistant_id"])
        assert (mine["name"], mine["version"]) == ("mine too", 2)
        assert len(await client.assistants.get_versions(assistant["assistant_id"])) == 2
        got = await client.runs.wait(ids["agent"], "agent", input=human("say 1"))
        assert texts(got["messages"])[-2:] == ["say 1", "w0"]
        got = await client.runs.wait(ids["hitl"], "hitl", command={"resume": {"decisions": [{"type": "approve"}]}})
        assert texts(got["messages"])[-1] == "tool said: Found 10 results for x"
        got = await client.runs.wait(ids["nested"], "nested", command={"resume": "answer"})
        assert got["value"] == "answer" and got["trail"][-1] == "after"
        got = await client.runs.wait(ids["pipeline"], "pipeline", command={"resume": "yes"})
        assert got["answer"] == "yes"
        assert (await client.store.get_item(["users", "42"], "likes"))["value"] == {"food": ["figs"]}


async def test_from_an_understudy(home, tmp_path):
    """A data folder or database is copied with its log; its server is read like any other."""
    with understudy(home) as url:
        client = get_client(url=url)
        thread = (await client.threads.create())["thread_id"]
        for i in range(6):
            await client.runs.wait(thread, "summarizing", input=human(f"say {i + 2}"))
        before = await client.threads.get_state(thread)
        events = await client.http.get(f"/threads/{thread}/events", params={"limit": 200})
        move("import", "--from", url, "--data", tmp_path / "by url")
        move("import", "--from", home.source, "--data", tmp_path / "by folder")
        # What is left of a pruned thread is a summary; its transcript has the rest.
        await client.http.post("/threads/prune", json={"thread_ids": [thread], "strategy": "keep_latest"})
        assert len(await client.threads.get_history(thread, limit=100)) == 1
        move("import", "--from", url, "--data", tmp_path / "pruned")
        move("export", "--to", tmp_path / "while it runs.sqlite", *home.flags)
    for copy in ("by url", "by folder", "pruned"):
        with understudy(Folder(tmp_path / copy)) as url:
            client = get_client(url=url)
            state = await client.threads.get_state(thread)
            if copy == "pruned":  # of the markers only the last is known
                assert spoken(state) == spoken(before) and len(spoken(state)) == 12
            else:
                assert told(state["values"]["messages"]) == told(before["values"]["messages"]), copy
            if copy == "by folder":
                assert await client.http.get(f"/threads/{thread}/events", params={"limit": 200}) == events
            got = await client.runs.wait(thread, "summarizing", input=human("say 1"))
            assert got["messages"][-1]["content"] == "w0"


@pytest.mark.parametrize("form", ["sqlite msgpack", "sqlite json", "postgres"])
async def test_old_formats(form, tmp_path, data, request):
    """Checkpoints as langgraph before 0.5 left them: numbers as versions, sends in the checkpoint or on its parent, JSON with envelopes."""
    kind = form.split()[0]
    where = str(tmp_path / "old.sqlite") if kind == "sqlite" else request.getfixturevalue("new_database")()
    thread = str(uuid.uuid4())
    with savers(kind, where) as (saver, _):
        graph = with_saver("pipeline", saver)
        graph.interrupt_before_nodes = ["work"]
        graph.invoke({"topic": "t"}, at(thread, "pipeline"))
        assert graph.get_state(at(thread)).next == ("work",) * 3
        (make_old_sqlite if kind == "sqlite" else make_old_postgres)(saver, form)
        values = {k: v for k, v in graph.get_state(at(thread)).values.items()}
    move("import", "--from", where, *data.flags)
    assert "nothing to do" in move("import", "--from", where, *data.flags)
    with understudy(data) as url:
        client = get_client(url=url)
        state = await client.threads.get_state(thread)
        assert state["values"] == values == {"topic": "t", "items": ["t"]}
        assert state["next"] == ["work"] * 3
        await client.runs.wait(thread, "pipeline", input=None)
        got = await client.runs.wait(thread, "pipeline", command={"resume": "yes"})
        assert got == {"topic": "t", "items": ["t", "t-0", "t-1", "t-2"], "answer": "yes"}


def make_old_sqlite(saver, form):
    """Rewrites all checkpoints of a file."""
    def number(version):
        return int(str(version).split(".")[0])

    rows = saver.conn.execute("SELECT rowid, type, checkpoint FROM checkpoints").fetchall()
    for row, kind, data in rows:
        checkpoint = saver.serde.loads_typed((kind, data))
        checkpoint["v"] = 3
        checkpoint["channel_versions"] = {k: number(v) for k, v in checkpoint["channel_versions"].items() if k != "__pregel_tasks"}
        checkpoint["versions_seen"] = {n: {k: number(v) for k, v in seen.items() if k != "__pregel_tasks"} for n, seen in checkpoint["versions_seen"].items()}
        checkpoint["pending_sends"] = checkpoint["channel_values"].pop("__pregel_tasks", [])
        checkpoint.pop("updated_channels", None)
        if form.endswith("json"):
            new = "json", json.dumps(checkpoint, default=envelope).encode()
        else:
            new = saver.serde.dumps_typed(checkpoint)
        saver.conn.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?", (*new, row))
    saver.conn.commit()


def envelope(value):
    """A send as the serialiser for JSON wrote it."""
    return {"lc": 2, "type": "constructor", "id": ["langgraph", "types", "Send"], "kwargs": {"node": value.node, "arg": value.arg}}


def make_old_postgres(saver, form):
    saver.conn.execute("DELETE FROM checkpoint_blobs WHERE channel = '__pregel_tasks'")
    saver.conn.execute("""UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint #- '{channel_versions,__pregel_tasks}' #- '{updated_channels}', '{v}', '3')""")


async def test_from_a_proxy(tmp_path, data, database):
    """A proxy's records bring the log; its URL, or that of the server behind it, brings the checkpoints."""
    with langgraph_server(tmp_path) as upstream, proxy(upstream, Folder(tmp_path / "proxy")) as url, proxy(upstream, database) as second:
        client = get_client(url=url)
        thread = (await client.threads.create())["thread_id"]
        for i in range(6):
            await client.runs.wait(thread, "summarizing", input=human(f"say {i + 2}"))
        before = await client.threads.get_state(thread)
        records = next((tmp_path / "proxy" / "upstreams").iterdir())
        move("import", "--from", records, *data.flags)
        move("import", "--from", url, *data.flags)
        # A proxy that records into a database has a schema for each upstream.
        assert (await get_client(url=second).threads.get_state(thread))["values"] == before["values"]
        [schema] = database.schemas()
        copy = Folder(tmp_path / "by schema")
        move("import", "--from", f"{database.url}?options=-csearch_path%3D{schema}", *copy.flags)
        move("import", "--from", upstream, *copy.flags)
        move("import", "--from", url, "--data", tmp_path / "by url")
    for copy in (data, copy, Folder(tmp_path / "by url")):
        with understudy(copy) as url:
            client = get_client(url=url)
            state = await client.threads.get_state(thread)
            assert told(state["values"]["messages"]) == told(before["values"]["messages"])
            assert len(await client.threads.get_history(thread, limit=100)) == 24
            got = await client.runs.wait(thread, "summarizing", input=human("say 1"))
            assert got["messages"][-1]["content"] == "w0"


def spoken(state) -> list[tuple]:
    return told(m for m in state["values"]["messages"] if "summary_marker" not in m["additional_kwargs"])


@pytest.mark.parametrize("kind, home", [("sqlite", "folder"), ("sqlite", "database"), ("postgres", "database")], indirect=["home"])
async def test_killed_in_the_middle(where, kind, home):
    with savers(kind, where) as (saver, _):
        graph = with_saver("ticker", saver)
        for _ in range(60):
            # Nodes of this graph are coroutines, the savers are not: what a run would have left is put step by step.
            config = at(str(uuid.uuid4()))
            graph.update_state(config, {"steps": 2, "tag": "x" * 5000}, as_node="__input__")
            for n in range(2):
                graph.update_state(config, {"done": n + 1, "items": [f"t{n}"]}, as_node="tick")
            graph.update_state(config, {"done": 0}, as_node="finish")
    command = [moving.BINARY, "import", "--from", where, *map(str, home.flags), "--graph", "ticker"]
    killed = 0
    for _ in range(5):
        before = home.written()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=moving.clean_environment())
        while process.poll() is None and home.written() < before + 400_000:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    move("import", "--from", where, *home.flags, "--graph", "ticker")
    assert "nothing to do" in move("import", "--from", where, *home.flags, "--graph", "ticker")
    with understudy(home) as url:
        client = get_client(url=url)
        rows = await client.threads.search(limit=100)
        assert len(rows) == 60
        for row in rows:
            assert len(await client.threads.get_history(row["thread_id"], limit=1000)) == 4
            assert row["values"]["items"] == ["t0", "t1"]


def digest(out: str) -> str:
    """What the last line of an import says of everything that was moved."""
    return out.rsplit("(digest ", 1)[1].split(")")[0]


@pytest.mark.parametrize("source, word", [
    ("postgres://nobody@127.0.0.1:1/x", "nothing listens there"),
    ("http://127.0.0.1:1", "cannot be reached"),
    ("postgres://[", "cannot be parsed"),
    ("ftp://x", "is none of"),
    ("missing.sqlite", "does not exist"),
    (__file__, "is not an SQLite database"),
])
def test_what_cannot_be_read_says_so(source, word, data):
    out = move("import", "--from", source, *data.flags, ok=False)
    assert word in out and "goroutine" not in out


def test_a_folder_in_use_is_left_alone(data, tmp_path):
    with understudy(data):
        out = move("import", "--from", str(tmp_path / "nothing.sqlite"), *data.flags, ok=False)
        assert "does not exist" in out
        other = tmp_path / "checkpoints.sqlite"
        with savers("sqlite", str(other)) as (saver, _):
            saver.setup()
        out = move("import", "--from", str(other), *data.flags, ok=False)
        assert "in use by another server (pid " in out
