"""What killloop.py and chaos.py share: clients that put load on one or several servers, and what is asked of the API afterwards.

Clients start runs with every multitask strategy on threads of their own, cancel some, wait for some, and follow some, which they rejoin with
Last-Event-ID on any server whenever their stream breaks, and now and then break themselves. Everything that was acknowledged is remembered.
"""
from __future__ import annotations

import asyncio
import collections
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from faults import Receivers, read_slowly

FINAL = {"success", "error", "interrupted", "timeout"}
DOWN = (httpx.TransportError,)


@dataclass
class Graph:
    """A graph that says whose each of its messages is: their text begins with the tag of the run."""

    assistant: str
    input: object  # (tag, steps, delay, bytes of a token) -> input of a run
    want: object  # (tag, steps) -> texts of the messages of a whole run


TURNS = Graph(
    "turns",
    lambda tag, steps, delay, pad: {"messages": [{"role": "user", "content": tag}], "tag": tag, "steps": steps, "delay": delay, "pad": pad},
    lambda tag, steps: [tag] + [f"{tag} {i}" for i in range(steps)],
)


class Run:
    """What is known of one run that a client asked for."""

    def __init__(self, tag: str, thread: str, strategy: str, steps: int, graph: Graph = TURNS) -> None:
        self.tag, self.thread, self.strategy, self.steps, self.graph = tag, thread, strategy, steps, graph
        self.id: str | None = None  # None: nobody acknowledged it
        self.cancel: str | None = None  # an action that was asked for
        self.records: list[tuple[str, str, str]] = []  # (id, event, data) as a subscriber saw them
        self.followed = self.ended = self.gap = False
        self.joins = 0
        self.result: object = None  # what wait or join answered
        self.seen: str | None = None  # how it had ended, when it was looked at
        self.webhook = ""  # where its end is to be told
        self.pad = 0  # bytes of each of its tokens

    def want(self) -> list[str]:
        return self.graph.want(self.tag, self.steps)

    def mine(self, said: list[str]) -> list[str]:
        return [s for s in said if s.split(" ")[0] == self.tag]


@dataclass
class Load:
    """Clients. urls are those of the servers: each request goes to one of them."""

    urls: list[str]
    rng: random.Random
    graphs: list[Graph] = field(default_factory=lambda: [TURNS])
    delays: tuple = (0, 0.03, 0.1)  # seconds of a step
    leave: float = 0  # how likely a client breaks its stream, per record
    patience: float = 60  # seconds without a sign of life after which a client goes away
    spread: float = 0.2  # seconds between runs of a burst
    pause: float = 0  # seconds between bursts
    steady: Callable[[], list[str]] = lambda: []  # the servers to which nothing is being done, that answer as fast as they can
    receivers: Receivers | None = None  # of webhooks
    slow: int = 0  # clients that read slowly

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(60, read=max(60, self.patience), connect=2), limits=limits)
        self.streaming = httpx.Timeout(60, read=self.patience, connect=2)
        self.threads: dict[str, list[Run]] = {}
        self.going = True
        self.deleted: dict[str, bool] = {}  # thread: whether that was acknowledged
        self.refused = self.early = self.left = self.slowly = 0
        self.unexpected: list[str] = []

    def at(self, path: str) -> str:
        return self.rng.choice(self.urls) + path

    async def post(self, path: str, body: dict, tries: bool = True) -> httpx.Response | None:
        """None: the server went away before it answered, and whether it did what was asked is not known."""
        while True:
            try:
                r = await self.http.post(self.at(path), json=body)
            except DOWN:
                if not tries:
                    return None
                await asyncio.sleep(0.1)
                continue
            if r.status_code == 503:  # shutting down or starting, or what it stands on is away
                await asyncio.sleep(0.1)
                if tries:
                    continue
                return None
            return r

    async def get(self, path: str, params: dict | None = None) -> httpx.Response:
        """Asks until there is an answer."""
        while True:
            try:
                r = await self.http.get(self.at(path), params=params)
                if r.status_code != 503:
                    return r
            except DOWN:
                pass
            await asyncio.sleep(0.1)

    async def client(self, number: int) -> None:
        count = 0
        thread = None
        while self.going:
            if thread is None or self.rng.random() < 0.15:
                if thread is not None and self.rng.random() < 0.2:
                    await self.delete(thread)
                r = await self.post("/threads", {})
                thread = r.json()["thread_id"]
                self.threads[thread] = []
                graph = self.rng.choice(self.graphs)
            burst = self.rng.choice([1, 1, 2, 3])
            tasks = []
            for _ in range(burst):
                count += 1
                strategy = self.rng.choice(["enqueue", "reject", "interrupt", "rollback"])
                run = Run(f"{number + 1}{count:05}", thread, strategy, self.rng.randint(1, 6), graph)
                run.pad = 50_000 if self.slow and self.rng.random() < 0.1 else 0
                self.threads[thread].append(run)
                tasks.append(asyncio.create_task(self.one(run)))
                await asyncio.sleep(self.rng.random() * self.spread)
            await asyncio.gather(*tasks)
            await asyncio.sleep(self.rng.random() * self.pause)

    async def delete(self, thread: str) -> None:
        """Deletes a thread, whose runs may go on meanwhile."""
        self.deleted[thread] = False
        while True:
            try:
                r = await self.http.delete(self.at(f"/threads/{thread}"))
            except DOWN:
                pass
            else:
                if r.status_code in (204, 404):
                    self.deleted[thread] = True
                    return
                if r.status_code != 503:
                    self.unexpected.append(f"delete: {r.status_code} {r.text[:200]}")
                    return
            await asyncio.sleep(0.1)

    async def dawdle(self) -> None:
        """Streams runs of others, and reads little of them or nothing."""
        while self.going:
            await asyncio.sleep(0.2)
            recent = [r for runs in list(self.threads.values())[-20:] for r in runs[-5:] if r.id and r.pad]
            if recent:
                run = self.rng.choice(recent)
                self.slowly += 1
                await read_slowly(self.rng.choice(self.urls), f"/threads/{run.thread}/runs/{run.id}/stream", self.rng.uniform(2, 15), self.rng.choice([0, 16, 4096]))

    async def one(self, run: Run) -> None:
        body = {
            "assistant_id": run.graph.assistant, "multitask_strategy": run.strategy, "stream_mode": ["values", "updates", "custom"],
            "stream_resumable": True, "input": run.graph.input(run.tag, run.steps, self.rng.choice(self.delays), run.pad),
        }
        if self.receivers is not None and self.rng.random() < 0.2:
            run.webhook = self.rng.choice([self.receivers.good, self.receivers.hanging]) + run.tag
            body["webhook"] = run.webhook
        kind = self.rng.random()
        if kind < 0.5:
            run.followed = True
            await self.follow(run, body)
            return
        if kind < 0.7:
            await self.wait(run, body)
            return
        r = await self.post(f"/threads/{run.thread}/runs", body, tries=False)
        if r is None or not self.taken(run, r):
            return
        run.id = r.json()["run_id"]
        if kind > 0.9:
            await asyncio.sleep(self.rng.random() * 0.3)
            run.cancel = self.rng.choice(["interrupt", "rollback"])
            r = await self.post(f"/threads/{run.thread}/runs/{run.id}/cancel?action={run.cancel}", {})
            if r.status_code >= 500:
                self.unexpected.append(f"cancel: {r.status_code} {r.text[:200]}")

    def taken(self, run: Run, r: httpx.Response) -> bool:
        if r.status_code < 300:
            return True
        if r.status_code == 409 and run.strategy == "reject":
            self.refused += 1
        elif r.status_code != 503:
            self.unexpected.append(f"{run.strategy}: {r.status_code} {r.text[:200]}")
        return False

    def named(self, run: Run, r: httpx.Response) -> None:
        location = r.headers.get("content-location", "")
        if run.id is None and "/runs/" in location:
            run.id = location.split("/runs/")[1].split("/")[0]

    async def wait(self, run: Run, body: dict) -> None:
        """Waits for the result of a run, and when the connection breaks joins it until there is one."""
        request = ("POST", f"/threads/{run.thread}/runs/wait", body)
        while True:
            method, path, body = request
            try:
                async with self.http.stream(method, self.at(path), json=body, timeout=self.streaming) as r:
                    if r.status_code < 300:
                        self.named(run, r)
                    text = await r.aread()
                    if run.id is None:
                        self.taken(run, r)
                        return
                    if r.status_code < 300:
                        run.result = json.loads(text)
                        return
                    if r.status_code == 404:
                        return  # rolled back meanwhile
                    if r.status_code != 503:
                        self.unexpected.append(f"join: {r.status_code} {r.text[:200]}")
                        return
            except DOWN:
                pass
            if run.id is None:
                return
            await asyncio.sleep(0.1)
            request = ("GET", f"/threads/{run.thread}/runs/{run.id}/join", None)

    async def follow(self, run: Run, body: dict) -> None:
        """Streams a run to its end, over as many connections as it takes."""
        method, path, headers = "POST", f"/threads/{run.thread}/runs/stream", {}
        while True:
            run.joins += 1
            try:
                async with self.http.stream(method, self.at(path), json=body, headers=headers, timeout=self.streaming) as r:
                    if r.status_code >= 300:
                        await r.aread()
                        if r.status_code == 503:
                            raise httpx.ConnectError("not at the moment")
                        if run.id is None:
                            self.taken(run, r)
                        elif r.status_code != 404:
                            self.unexpected.append(f"join: {r.status_code} {r.text[:200]}")
                        else:
                            run.ended = True  # rolled back meanwhile
                        return
                    self.named(run, r)
                    if await self.read(run, r):
                        run.ended = True
                        return
            except DOWN:
                pass
            if run.id is None:
                return
            await asyncio.sleep(0.05)
            last = run.records[-1][0] if run.records else "-1"
            method, path, body, headers = "GET", f"/threads/{run.thread}/runs/{run.id}/stream", None, {"last-event-id": last}

    async def read(self, run: Run, r: httpx.Response) -> bool:
        """Reads one connection; true when the stream came to its end and was not cut."""
        event, data, ident = "", [], ""
        async for line in lines(r):
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].strip())
            elif line.startswith("id:"):
                ident = line[3:].strip()
            elif not line and event:
                if event == "gap":
                    run.gap = True
                if ident and event != "end":
                    run.records.append((ident, event, "\n".join(data)))
                event, data, ident = "", [], ""
                if self.leave and self.rng.random() < self.leave:
                    self.left += 1
                    return False
        # An orderly end closes the chunked body; a cut raises. Whether the run ended, the run says.
        row = await self.get(f"/threads/{run.thread}/runs/{run.id}")
        over = row.status_code == 404 or row.status_code == 200 and row.json()["status"] in FINAL
        if row.status_code == 200 and over:
            run.seen = row.json()["status"]
        self.early += not over
        return over


async def lines(r: httpx.Response):
    rest = b""
    async for chunk in r.aiter_raw():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r").decode()


class Check:
    """What the API says of what was acknowledged. Servers must be at rest, and stay."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.wrong: collections.Counter = collections.Counter()
        self.first: dict[str, str] = {}
        self.statuses: collections.Counter = collections.Counter()
        self.ended: list[Run] = []  # those with webhooks

    def fail(self, kind: str, text: str) -> None:
        self.wrong[kind] += 1
        self.first.setdefault(kind, text)

    def none(self, ask: Callable[[str], list], kind: str, sql: str) -> None:
        """Nothing may be found."""
        if rows := ask(sql):
            self.fail(kind, f"{len(rows)} rows, first {rows[:3]}")

    def rows(self, ask: Callable[[str], list], tables: list[str]) -> None:
        """What both databases have in the same tables; tables are those with a thread_id."""
        def none(kind: str, sql: str) -> None:
            self.none(ask, kind, sql)

        none("table runs: not ended", "SELECT run_id, status FROM runs WHERE status IN ('pending', 'running')")
        none("table threads: busy", "SELECT thread_id FROM threads WHERE status = 'busy'")
        # What is left of deleted threads is named in thread_remains until it is deleted too, and copies whose server was killed in thread_copies until they lapse.
        known = " UNION ".join(f"SELECT thread_id FROM {table}" for table in ("threads", "thread_remains", "thread_copies") if table in tables)
        # A follower of logs may store its offset just after another server has deleted the thread; its sweep deletes it within a minute, which is not waited for here.
        for table in tables:
            if table not in ("threads", "thread_remains", "thread_copies", "upstream_deleted", "outbox", "log_offsets"):
                none(f"table {table}: without thread", f"SELECT thread_id, count(*) FROM {table} WHERE thread_id <> '' AND thread_id NOT IN "
                     f"({known}) GROUP BY thread_id")
        parts = " UNION ".join(f"SELECT thread_id FROM {table}" for table in ("thread_remains", "thread_copies") if table in tables) or "SELECT ''"
        none("table events: gap", f"SELECT thread_id, count(*), max(seq) FROM events WHERE thread_id NOT IN ({parts}) GROUP BY thread_id HAVING count(*) <> max(seq) OR min(seq) <> 1")
        none("table events: body missing", "SELECT thread_id, seq FROM events WHERE body NOT IN (SELECT body FROM event_bodies)")
        none("table checkpoints: parent missing",
             "SELECT c.thread_id, c.checkpoint_id FROM checkpoints c WHERE c.parent_checkpoint_id <> '' AND c.parent_checkpoint_id IS NOT NULL AND c.thread_id NOT IN (" + parts + ") AND NOT EXISTS "
             "(SELECT 1 FROM checkpoints p WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_checkpoint_id)")
        none("table transcripts: node missing",
             "SELECT t.thread_id, t.checkpoint_id FROM transcripts t WHERE t.node <> 0 AND NOT EXISTS "
             "(SELECT 1 FROM transcript_nodes n WHERE n.thread_id = t.thread_id AND n.node = t.node)")

    async def rest(self, within: float) -> None:
        """Waits until nothing goes on."""
        end = asyncio.get_running_loop().time() + within
        while True:
            r = await self.load.post("/threads/search", {"status": "busy", "limit": 1000})
            if r.status_code == 200 and not r.json():
                return
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(0.25)
        for t in r.json():
            self.fail("thread stuck", t["thread_id"])

    async def thread(self, client, thread: str, runs: list[Run]) -> None:
        """client: of langgraph_sdk."""
        rows = {r["run_id"]: r for r in await client.runs.list(thread, limit=1000)}
        state = await client.threads.get_state(thread)
        values = state["values"] or {}
        messages = values.get("messages", []) if isinstance(values, dict) else []
        said = [m["content"] for m in messages]
        ids = [m.get("id") for m in messages]
        if len(set(ids)) != len(ids):
            self.fail("message id twice in a state", thread)
        if len(set(said)) != len(said):
            twice = [s for s, n in collections.Counter(said).items() if n > 1]
            self.fail("message doubled in the state", f"{thread}: {twice}")
        rollbacks = [r for r in runs if r.strategy == "rollback" or r.cancel == "rollback"]
        for run in runs:
            if run.id is None:
                continue
            row = rows.get(run.id)
            if row is None:
                self.statuses["rolled back"] += 1
                if not any(r is not run or r.cancel for r in rollbacks):
                    self.fail("acknowledged run lost", f"{thread} {run.id} {run.tag} {run.strategy}")
                continue
            status = row["status"]
            self.statuses[status] += 1
            if run.webhook and status != "interrupted":  # one that was cancelled before it began tells nobody
                self.ended.append(run)
            if run.seen not in (None, status):
                self.fail("run that had ended has another status", f"{thread} {run.id}: {run.seen}, then {status}")
            if status not in FINAL:
                self.fail("run not ended", f"{thread} {run.id} {status}")
            if status == "error":
                await self.error(thread, run)
            want, mine = run.want(), run.mine(said)
            if status == "success" and mine != want:
                self.fail("messages of a run that succeeded lost or out of order", f"{thread} {run.id}: {mine} and not {want}")
            elif mine != want[:len(mine)]:
                self.fail("messages out of order", f"{thread} {run.id}: {mine}")
            if run.followed:
                await self.stream(run, status, want)
            if status == "success" and isinstance(run.result, dict) and "__error__" not in run.result:
                if run.mine([m["content"] for m in run.result.get("messages", [])]) != want:
                    self.fail("who waited got another result", f"{thread} {run.id}: {str(run.result)[-300:]}")
        for run in runs:
            if run.id and run.id not in rows and run.mine(said):
                self.fail("messages of a run that was rolled back", f"{thread} {run.id}")
        await self.events(thread, said)

    async def error(self, thread: str, run: Run) -> None:
        r = await self.load.get(f"/threads/{thread}/runs/{run.id}/events")
        why = [e["content"] for e in r.json().get("data", []) if e["event_type"] == "run.error"]
        if "ServerDied" in str(why):
            self.statuses["error: blamed for the death of servers"] += 1
        elif "died 3 times" in str(why):
            self.statuses["error: worker killed three times"] += 1
        else:
            self.fail("run ended in an unexpected error", f"{thread} {run.id}: {why or r.text[:300]}")

    async def gone(self, thread: str) -> None:
        """A thread that was deleted stays so, with all that belongs to it."""
        for path in ("", "/state", "/events", "/runs"):
            r = await self.load.get(f"/threads/{thread}{path}")
            if r.status_code != 404 and r.text != "[]":
                self.fail("deleted thread came back", f"{thread}{path}: {r.status_code} {r.text[:200]}")

    async def webhooks(self, within: float) -> int:
        """Each run that ended has told so; it gives how many have not, when there was no time to wait for them."""
        def missing() -> list[Run]:
            return [r for r in self.ended if r.webhook.startswith(receivers.good) and r.tag not in receivers.took]

        if (receivers := self.load.receivers) is None:
            return 0
        end = asyncio.get_running_loop().time() + within
        while missing() and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(1)
        if within:
            for run in missing():
                self.fail("webhook not sent", f"{run.thread} {run.id}")
        return len(missing())

    async def events(self, thread: str, said: list[str], also: list[str] = []) -> None:
        after, rows = 0, []
        while True:
            r = await self.load.get(f"/threads/{thread}/events", params={"limit": 1000, "after_seq": after})
            if r.status_code != 200:
                self.fail("events not readable", f"{thread}: {r.status_code} {r.text[:200]}")
                return
            page = r.json()
            rows += page["data"]
            if not page["has_more"]:
                break
            after = rows[-1]["seq"]
        if [r["seq"] for r in rows] != list(range(1, len(rows) + 1)):
            self.fail("gap in the numbers of events", thread)
        alive = [r for r in rows if r["category"] == "message" and not (r["metadata"] or {}).get("rolled_back") and "revises" not in (r["metadata"] or {})]
        words = [r["content"]["content"] for r in alive]
        if len(set(words)) != len(words):
            twice = [s for s, n in collections.Counter(words).items() if n > 1]
            self.fail("message event doubled", f"{thread}: {twice}")
        if missing := (set(said) | set(also)) - set(words):
            self.fail("message without event", f"{thread}: {sorted(missing)}")
        ends = collections.Counter(r["run_id"] for r in rows if r["event_type"] in ("run.end", "run.error"))
        if any(n > 1 for n in ends.values()):
            self.fail("run ended twice in the log", f"{thread}: {[r for r, n in ends.items() if n > 1]}")

    async def stream(self, run: Run, status: str, want: list[str]) -> None:
        if not run.ended:
            self.fail("subscriber did not come to the end", f"{run.thread} {run.id}")
        keys = [tuple(map(int, i.split("-"))) for i, _, _ in run.records]
        if keys != sorted(set(keys)):
            self.fail("subscriber saw records twice or out of order", f"{run.thread} {run.id}: {[i for i, _, _ in run.records][:60]}")
        if run.gap:
            self.fail("subscriber was told of a gap", f"{run.thread} {run.id}")
        again = Run(run.tag, run.thread, run.strategy, run.steps)
        again.id = run.id
        leave, self.load.leave = self.load.leave, 0
        async with self.load.http.stream("GET", self.load.at(f"/threads/{run.thread}/runs/{run.id}/stream"), headers={"last-event-id": "-1"}) as r:
            await self.load.read(again, r)
        self.load.leave = leave
        # By what they say: the last records of a run have another id in the live stream when the next run of the thread has begun on another server.
        seen = collections.Counter((e, d) for _, e, d in run.records)
        kept = [(i, e, d) for i, e, d in again.records if e not in ("custom", "error") and not (e == "metadata" and "run_done" in d)]
        missed = []
        for i, e, d in kept:
            if not seen[e, d]:
                missed.append((i, e))
            seen[e, d] -= 1
        if missed:
            self.fail("subscriber missed records", f"{run.thread} {run.id}: {missed[:5]} of {len(kept)}, {run.joins} joins")
        if status == "success":
            last = [d for _, e, d in run.records if e == "values"]
            words = [m["content"] for m in json.loads(last[-1]).get("messages", [])] if last else []
            if run.mine(words) != want:
                self.fail("subscriber lacks the last values", f"{run.thread} {run.id}: {run.joins} joins, {words[-6:]}")
