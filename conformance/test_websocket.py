"""Event streaming over WebSocket: the recorded exchange, and what sockets of one thread share. REAL=1 says that LangGraph Server answers."""
from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from pathlib import Path

import httpx
import pytest
from helpers import BASE_URL
from langgraph_sdk import get_client
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

REAL = os.environ.get("REAL") == "1"
ours = pytest.mark.skipif(REAL, reason="LangGraph Server does otherwise")
RECORDED = json.loads((Path(__file__).parent / "wire" / "v2_websocket.json").read_text())["frames"]
EVERYTHING = ["values", "updates", "messages", "tools", "custom", "lifecycle", "input", "tasks"]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def socket(tid: str, **options):
    return connect(f"{BASE_URL.replace('http', 'ws', 1)}/threads/{tid}/stream/events", **options)


class Client:
    """One socket: answers by id, and the events that came."""

    def __init__(self, ws):
        self.ws, self.ids, self.events = ws, 0, []

    async def receive(self) -> dict:
        message = json.loads(await self.ws.recv())
        if message["type"] == "event":
            self.events.append(message)
        return message

    async def ask(self, method: str, **params) -> dict:
        self.ids += 1
        await self.ws.send(json.dumps({"id": self.ids, "method": method, "params": params}))
        while (answer := await self.receive()).get("id") != self.ids:
            pass
        return answer

    async def subscribe(self, *channels: str, **params) -> dict:
        return await self.ask("subscription.subscribe", channels=list(channels), **params)

    async def until(self, *ends: str) -> list[dict]:
        """Reads until the root has ended in one of these ways, and returns all events so far."""
        while not any(terminal(e, ends) for e in self.events):
            await self.receive()
        return self.events


def terminal(e: dict, ends: tuple[str, ...]) -> bool:
    return e["method"] == "lifecycle" and e["params"]["namespace"] == [] and e["params"]["data"]["event"] in ends


def say(n: int) -> dict:
    return {"messages": [{"role": "user", "content": f"say {n}"}]}


def test_recorded_exchange():
    """Each frame is answered as LangGraph Server did. Ids differ, and seq keeps its order."""
    names: dict[str, str] = {}  # placeholders of the recording, and what they stand for here
    seqs: dict[int, int] = {0: 0}

    def fill(value):
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, dict):
            return {k: seqs[v] if k == "since" else fill(v) for k, v in value.items()}
        return [fill(v) for v in value] if isinstance(value, list) else value

    def match(want, got, at=""):
        if at.endswith((".event_id", ".timestamp")):
            return
        if at.endswith((".seq", ".applied_through_seq")):
            if at.endswith(".seq") and want not in seqs:
                assert got > max(seqs.values())
                seqs[want] = got
            assert seqs[want] == got, at
            return
        if isinstance(want, str) and re.fullmatch(r"<[a-z-]+-\d+>", want):
            assert names.setdefault(want, got) == got, at
            return
        assert type(want) is type(got), at
        if isinstance(want, dict):
            assert want.keys() == got.keys(), at
            for k in want:
                match(want[k], got[k], f"{at}.{k}")
        elif isinstance(want, list):
            assert len(want) == len(got), at
            for i, (w, g) in enumerate(zip(want, got)):
                match(w, g, f"{at}[{i}]")
        else:
            assert want == got, at

    async def go():
        async with socket(str(uuid.uuid4())) as ws:
            expected: list[dict] = []

            async def receive():
                # An answer and events that a run sends meanwhile come in any order.
                while expected:
                    got = json.loads(await ws.recv())
                    of = [w for w in expected if (w["type"] == "event") == (got["type"] == "event")]
                    assert of, got
                    match(of[0], got)
                    expected.remove(of[0])

            for frame in RECORDED:
                if "recv" in frame:
                    expected.append(frame["recv"])
                    continue
                await receive()
                await ws.send(frame["send"] if isinstance(frame["send"], str) else json.dumps(fill(frame["send"])))
            await receive()

    run(go())


@ours
def test_every_connection_sees_the_same_events():
    """LangGraph Server's event ids differ between connections. Sockets and server-sent events, before and after the run: the same events under the same seq and event_id, each once."""

    async def go():
        tid = str(uuid.uuid4())
        async with socket(tid) as a, socket(tid) as b:
            live, other = Client(a), Client(b)
            await live.subscribe(*EVERYTHING)
            await live.subscribe("values", "lifecycle")  # matches again what the first one selects
            await other.subscribe("lifecycle", "messages")
            await live.ask("run.start", assistant_id="parent", input=say(5))
            await live.until("completed")
            await other.until("completed")
        async with socket(tid) as c:
            late = Client(c)
            answer = await late.subscribe(*EVERYTHING)
            assert answer["result"]["replayed_events"] == len(late.events) == len(live.events)
            tree = (await late.ask("agent.getTree"))["result"]["tree"]
        assert late.events == live.events
        assert len({e["event_id"] for e in live.events}) == len(live.events)
        assert other.events == [e for e in live.events if e["method"] in ("lifecycle", "messages")]
        assert [tree["status"], tree["children"][0]["graph_name"], tree["children"][0]["status"]] == ["completed", "child", "completed"]

    run(go())


def test_a_subscription_replays_the_current_run_only():
    async def go():
        tid = str(uuid.uuid4())
        for n in (1, 2):
            async with socket(tid) as ws:
                c = Client(ws)
                started = await c.ask("run.start", assistant_id="agent", input=say(n))
                await get_client(url=BASE_URL).runs.join(tid, started["result"]["run_id"])  # until it begins, the run before is the current one
                await c.subscribe("lifecycle")
                await c.until("completed")
                assert [e["params"]["data"]["event"] for e in c.events] == ["running", "completed"]
        async with socket(tid) as ws:
            c = Client(ws)
            tree = await c.ask("agent.getTree")
            assert REAL or tree["error"] == "no_such_run"  # LangGraph Server answers with the tree of the last run
            await c.subscribe("lifecycle")
            await c.until("completed")
            assert [e["params"]["data"]["event"] for e in c.events] == ["running", "completed"]

    run(go())


@ours
def test_reconnect_reads_on_from_any_run():
    """LangGraph Server answers resume_gap for what is before the current run."""

    async def go():
        tid = str(uuid.uuid4())
        async with socket(tid) as ws:
            live = Client(ws)
            await live.subscribe("lifecycle", "values")
            for n in (1, 2):
                live.events, before = [], live.events
                await live.ask("run.start", assistant_id="agent", input=say(n))
                await live.until("completed")
                live.events = before + live.events
        for at in range(len(live.events)):
            async with socket(tid) as ws:
                c = Client(ws)
                since = live.events[at - 1]["seq"] if at else 0
                await c.ask("subscription.reconnect", channels=["lifecycle", "values"], since=since)
                assert c.events == live.events[at:]

    run(go())


@ours
def test_a_gap_is_reported():
    """A v1 run that is not resumable leaves no events. Who resumes before it must not take what follows for all."""

    async def go():
        tid = str(uuid.uuid4())
        client = get_client(url=BASE_URL)
        async with socket(tid) as ws:
            live = Client(ws)
            await live.subscribe("lifecycle", "values")
            await live.ask("run.start", assistant_id="echo", input={"n": 1})
            await live.until("completed")
        last = live.events[-1]["seq"]
        async with socket(tid) as ws:
            assert (await Client(ws).ask("subscription.reconnect", channels=["values"], since=last))["result"]["replayed_events"] == 0
        await client.runs.wait(tid, "echo", input={"n": 2})
        async with socket(tid) as ws:
            c = Client(ws)
            refused = await c.ask("subscription.reconnect", channels=["values"], since=last)
            assert [refused["error"], refused["since"]] == ["resume_gap", last]
            assert refused["min_available_seq"] == live.events[0]["seq"]
            again = await c.ask("subscription.reconnect", channels=["lifecycle", "values"], since=0)
            assert again["result"]["replayed_events"] == len(live.events)
            assert c.events == live.events
        async with httpx.AsyncClient() as http, http.stream("POST", f"{BASE_URL}/threads/{tid}/stream/events", json={"channels": ["values"], "since": last}) as r:
            lines = r.aiter_lines()
            assert await anext(lines) == "event: error"
            error = json.loads((await anext(lines)).removeprefix("data: "))
            assert [error["type"], error["id"], error["error"], error["since"]] == ["error", None, "resume_gap", last]
            assert await anext(lines) == "", "an error has no id"

    run(go())


def test_subscriptions_come_and_go_while_a_run_streams():
    async def go():
        async with socket(str(uuid.uuid4())) as ws:
            c = Client(ws)
            lifecycle = await c.subscribe("lifecycle")
            await c.ask("run.start", assistant_id="agent", input=say(30))
            messages = []
            for _ in range(5):
                messages.append(await c.subscribe("messages"))
            assert (await c.ask("subscription.unsubscribe", subscription_id=messages[0]["result"]["subscription_id"]))["type"] == "success"
            await c.until("completed")
            # As LangGraph Server does, each subscription replays for itself. Without the copies nothing is missing.
            once = {e["seq"]: e for e in c.events}
            deltas = [once[s]["params"]["data"] for s in sorted(once) if once[s]["method"] == "messages"]
            text = "".join(d["delta"]["text"] for d in deltas if d["event"] == "content-block-delta")
            assert text == " ".join(f"w{i}" for i in range(30))
            await c.ask("subscription.unsubscribe", subscription_id=lifecycle["result"]["subscription_id"])
            again = await c.ask("subscription.unsubscribe", subscription_id=lifecycle["result"]["subscription_id"])
            assert again["error"] == "no_such_subscription"

    run(go())


@ours
def test_a_bad_thread_id_is_refused_with_a_status():
    """LangGraph Server accepts the socket and closes it; clients then try again."""

    async def go():
        with pytest.raises(InvalidStatus) as refused:
            async with socket("nonsense"):
                pass
        return refused.value.response.status_code

    assert run(go()) == 422


def test_sdk_interrupt_over_websocket():
    async def go():
        async with get_client(url=BASE_URL).threads.stream(assistant_id="pipeline", transport="websocket") as thread:
            await thread.run.start(input={"topic": "t"})
            while not thread.interrupts:
                await asyncio.sleep(0.02)
            await thread.run.respond("yes")
            return await thread.output.with_timeout(20)

    assert run(go())["answer"] == "yes"
