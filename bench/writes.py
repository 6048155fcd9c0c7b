"""What clients do next to runs in killloop.py and chaos.py, and the book that is kept of it: each write that was acknowledged is held against the end.

- several clients append messages to the same few threads by state updates, patch their metadata, run them and copy them;
- others put values of some megabytes, or nested 150 levels deep, or with thousands of keys, in states, metadata and the store, write them over and delete
  them, and ask for what is beyond the limits;
- long threads are made of a few large requests, then copied, pruned and deleted;
- searches that find nothing read everything.

Meanwhile a small write and a plain read are timed again and again; neither may wait longer than `patience` while nothing is done to their server.

A write whose answer did not come may have happened or not, but whole. One that was refused has not happened.
"""
from __future__ import annotations

import asyncio
import collections
import json
import random
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from langgraph_sdk import get_client

from faults import Memory
from soak import Check, Load, Run, TURNS

LEVELS = 150  # of deep values
HEAVY = ("copy of a long thread", "prune", "delete of a long thread")
TOO_DEEP = {"metadata": 201, "body": 300}


@dataclass
class Sizes:
    """How much of it."""

    shared: int = 4  # threads that several clients write
    writers: int = 3  # clients of each
    singles: int = 3  # clients with threads and items of their own
    huge: int = 3 << 20  # bytes
    keys: int = 20_000  # of one object
    steps: int = 150  # of a long thread, each with a checkpoint of its own
    bites: int = 8  # further updates of a long thread
    messages: int = 1_000  # of each
    items: int = 150  # that scans read
    item: int = 200 << 10  # bytes of each
    scans: int = 16  # at a time
    pause: float = 0.3  # seconds between writes of a client


SHORT = Sizes(shared=2, singles=2, huge=1 << 20, keys=10_000, steps=40, bites=2, messages=500, items=30, item=100 << 10, scans=12)


def value(kind: str, seed: int, sizes: Sizes) -> object:
    """A value that can be made again to compare it."""
    if kind == "huge":
        return {"seed": seed, "text": f"{seed} ".ljust(sizes.huge, "ä" if seed % 7 == 0 else "x")}
    if kind == "wide":
        return {"seed": seed, **{f"k{i}": i for i in range(sizes.keys)}}
    if kind == "deep":
        return nested(seed, LEVELS)
    return {"seed": seed}


def nested(seed: int, levels: int) -> object:
    v: object = seed
    for i in range(levels):
        v = {"d": v} if i % 2 else [v]
    return {"seed": v}


@dataclass
class Update:
    """Messages that one request appends."""

    tag: str
    texts: list[str]
    acked: bool | None = None  # None: not known; False: refused


@dataclass
class Copy:
    thread: str
    source: Shared | Long
    before: list[str]  # texts that were acknowledged before it was asked for
    metadata: dict[str, int]  # the same of patches
    own: list[Update] = field(default_factory=list)


@dataclass
class Shared:
    """A thread that several clients write at the same time."""

    thread: str
    updates: list[Update] = field(default_factory=list)
    patches: dict[str, tuple[int, bool | None]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)


@dataclass
class Long:
    thread: str
    updates: list[Update] = field(default_factory=list)


@dataclass
class Register:
    """What something that one client writes may hold: (kind, seed), or None for nothing."""

    may: list = field(default_factory=lambda: [None])
    late: list = field(default_factory=list)  # of requests that may still be under way somewhere

    def wrote(self, what: tuple[str, int] | None, r: httpx.Response | None, timeout: bool) -> None:
        if r is None:
            self.may.append(what)
            if timeout:
                self.late.append(what)
        elif r.status_code < 300:
            self.may = [what, *self.late]


class Writes:
    def __init__(self, load: Load, sizes: Sizes, patience: float) -> None:
        self.load, self.sizes, self.patience, self.rng = load, sizes, patience, random.Random(load.rng.random())
        self.acked: collections.Counter = collections.Counter()
        self.unknown: collections.Counter = collections.Counter()
        self.refused: collections.Counter = collections.Counter()
        self.shared: list[Shared] = []
        self.long: list[Long] = []
        self.copies: list[Copy] = []
        self.items: dict[tuple[str, str], Register] = collections.defaultdict(Register)
        self.states: dict[str, Register] = {}  # the blob of a thread
        self.metadata: dict[tuple[str, str], Register] = collections.defaultdict(Register)
        self.deleted: dict[str, bool] = {}  # thread: acknowledged
        self.wrong: list[tuple[str, str]] = []
        self.waits: dict[str, list[tuple[float, float, str]]] = collections.defaultdict(list)  # kind: (seconds, when, meanwhile)
        self.doing: collections.Counter = collections.Counter()
        self.heavy: list[tuple[str, float, float]] = []  # operations on long threads: what, from when to when
        self.took: dict[str, float] = collections.defaultdict(float)  # the longest of each heavy operation
        self.timeout = False
        self.count = 0

    def clients(self) -> list[asyncio.Task]:
        jobs = [self.share() for _ in range(self.sizes.shared)]
        jobs += [self.single(i) for i in range(self.sizes.singles)]
        jobs += [self.make_long(), self.scan(), self.probe("write"), self.probe("read")]
        return [asyncio.create_task(job) for job in jobs]

    def next(self) -> int:
        self.count += 1
        return self.count

    async def rest(self, seconds: float | None = None) -> None:
        await asyncio.sleep((seconds or self.sizes.pause) * (0.3 + 1.4 * self.rng.random()))

    async def send(self, kind: str, method: str, path: str, body: object = None, also: tuple[int, ...] = (), params: dict | None = None) -> httpx.Response | None:
        """Asks once. None: there was no answer, or one that leaves open what happened."""
        self.doing[kind] += 1
        began = time.monotonic()
        self.timeout = False
        try:
            r = await self.load.http.request(method, self.load.at(path), json=body, params=params)
        except httpx.TransportError as e:
            self.timeout = isinstance(e, httpx.TimeoutException)
            self.unknown[kind] += 1
            return None
        finally:
            self.doing[kind] -= 1
        if r.status_code == 503:
            self.unknown[kind] += 1
            self.timeout = True  # who says so may have asked something that is not over
            return None
        self.took[kind] = max(self.took[kind], time.monotonic() - began)
        if kind in HEAVY:
            self.heavy.append((kind, began, time.monotonic()))
        if r.status_code < 300:
            self.acked[kind] += 1
        elif r.status_code in also:
            self.refused[kind] += 1
        else:
            self.load.unexpected.append(f"{kind}: {r.status_code} {r.text[:200]}")
        return r

    async def thread(self, metadata: dict | None = None, supersteps: list | None = None) -> str | None:
        body: dict = {"metadata": {"graph_id": "turns", **(metadata or {})}}
        if supersteps:
            body["supersteps"] = supersteps
        r = await self.send("long thread" if supersteps else "thread", "POST", "/threads", body)
        return r.json()["thread_id"] if r is not None and r.status_code < 300 else None

    # Threads that several clients write at the same time.

    async def share(self) -> None:
        while self.load.going and (thread := await self.thread({"shared": self.next()})) is None:
            await self.rest()
        if not self.load.going:
            return
        shared = Shared(thread)
        self.shared.append(shared)
        self.load.threads[thread] = shared.runs
        await asyncio.gather(*(self.write(shared) for _ in range(self.sizes.writers)))

    async def write(self, s: Shared) -> None:
        while self.load.going:
            what = self.rng.random()
            if what < 0.5:
                await self.update(s.thread, s.updates)
            elif what < 0.75:
                key, n = f"p{self.next()}", self.next()
                s.patches[key] = n, None
                r = await self.send("patch", "PATCH", f"/threads/{s.thread}", {"metadata": {key: n}}, also=(409,))
                s.patches[key] = n, None if r is None else r.status_code < 300
            elif what < 0.9:
                run = Run(f"9{self.next():06}", s.thread, "enqueue", self.rng.randint(1, 2), TURNS)
                s.runs.append(run)
                await self.load.one(run)
            else:
                await self.copy(s)
            await self.rest()

    async def update(self, thread: str, book: list[Update], count: int = 0, also: tuple[int, ...] = (409,)) -> Update:
        tag = f"u{self.next()}"
        u = Update(tag, [f"{tag} {i}" for i in range(count or self.rng.randint(1, 3))])
        book.append(u)
        r = await self.send("update of many" if count else "update", "POST", f"/threads/{thread}/state", {
            "values": {"messages": [{"type": "human", "content": text} for text in u.texts]}, "as_node": "note"}, also)
        u.acked = None if r is None else r.status_code < 300
        return u

    async def copy(self, source: Shared | Long) -> Copy | None:
        before = [text for u in source.updates if u.acked for text in u.texts]
        patches = {k: n for k, (n, acked) in source.patches.items() if acked} if isinstance(source, Shared) else {}
        kind = "copy" if isinstance(source, Shared) else "copy of a long thread"
        r = await self.send(kind, "POST", f"/threads/{source.thread}/copy")
        if r is None or r.status_code >= 300:
            return None
        copy = Copy(r.json()["thread_id"], source, before, patches)
        self.copies.append(copy)
        if self.rng.random() < 0.5:
            await self.update(copy.thread, copy.own)
        return copy

    # Values that are huge, wide or deep, of one client each.

    async def single(self, number: int) -> None:
        threads: list[str] = []
        while self.load.going:
            what, kind, seed = self.rng.random(), self.rng.choice(["small", "huge", "wide", "deep"]), self.next()
            if what < 0.15 or not threads:
                if thread := await self.thread():
                    threads.append(thread)
                    self.states[thread] = Register()
            elif what < 0.35:
                thread = self.rng.choice(threads)
                r = await self.send("state", "POST", f"/threads/{thread}/state", {"values": {"blob": value(kind, seed, self.sizes)}, "as_node": "note"}, also=(409,))
                self.states[thread].wrote((kind, seed), r, self.timeout)
            elif what < 0.5:
                thread, key = self.rng.choice(threads), self.rng.choice(["a", "b"])
                if kind == "huge":
                    kind = "small"  # metadata has a limit
                r = await self.send("patch", "PATCH", f"/threads/{thread}", {"metadata": {key: value(kind, seed, self.sizes)}})
                self.metadata[thread, key].wrote((kind, seed), r, self.timeout)
            elif what < 0.75:
                await self.item(f"own{number}", f"i{self.rng.randrange(6)}", kind, seed)
            elif what < 0.85:
                await self.refuse(self.rng.choice(threads))
            elif what < 0.92 and len(threads) > 2:
                thread = threads.pop(self.rng.randrange(len(threads)))
                await self.delete(thread)
            else:
                await self.send("history", "POST", f"/threads/{self.rng.choice(threads)}/history", {"limit": 20})
            await self.rest()

    async def item(self, namespace: str, key: str, kind: str, seed: int) -> None:
        register = self.items[namespace, key]
        if self.rng.random() < 0.25:
            r = await self.send("delete of an item", "DELETE", "/store/items", {"namespace": [namespace], "key": key}, also=(404,))
            register.wrote(None, r, self.timeout)
            return
        r = await self.send("item", "PUT", "/store/items", {"namespace": [namespace], "key": key, "value": value(kind, seed, self.sizes)})
        register.wrote((kind, seed), r, self.timeout)

    async def refuse(self, thread: str) -> None:
        """What is beyond a limit is refused as such, and leaves nothing."""
        for kind, method, path, body in self.rng.sample([
            ("metadata", "PATCH", f"/threads/{thread}", {"metadata": {"never": nested(0, TOO_DEEP["metadata"])}}),
            ("metadata", "PATCH", f"/threads/{thread}", {"metadata": {"never": "x" * (1 << 20)}}),
            ("body", "POST", f"/threads/{thread}/state", {"values": {"blob": nested(0, TOO_DEEP["body"])}, "as_node": "note"}),
            ("body", "PUT", "/store/items", {"namespace": ["never"], "key": "never", "value": nested(0, TOO_DEEP["body"])}),
        ], 1):
            r = await self.send(f"{kind} beyond a limit", method, path, body, also=(400, 422))
            if r is not None and r.status_code not in ((400, 422) if kind == "body" else (422,)):  # LangGraph Server says 400 to deep bodies
                self.wrong.append(("limit not kept", f"{method} {path}: {r.status_code} {r.text[:200]}"))

    async def delete(self, thread: str, kind: str = "delete") -> None:
        r = await self.send(kind, "DELETE", f"/threads/{thread}", also=(404,) if thread in self.deleted else ())
        self.deleted[thread] = self.deleted.get(thread, False) or r is not None and r.status_code < 300

    # Long threads.

    async def make_long(self) -> None:
        while self.load.going:
            n = self.next()
            first = Update(f"u{n}", [f"u{n} {i}" for i in range(self.sizes.steps)], True)
            thread = await self.thread({"long": n}, [
                {"updates": [{"values": {"messages": [{"type": "human", "content": text}]}, "as_node": "note"}]} for text in first.texts])
            if thread is None:
                await self.rest()
                continue
            long = Long(thread, [first])
            for _ in range(self.sizes.bites):
                await self.update(thread, long.updates, self.sizes.messages)
            copy = await self.copy(long)
            r = await self.send("prune", "POST", "/threads/prune", {"thread_ids": [thread], "strategy": "keep_latest"})
            if copy is not None and self.rng.random() < 0.5:
                await self.delete(copy.thread, "delete of a long thread")
            if self.rng.random() < 0.7:
                await self.delete(thread, "delete of a long thread")
            if thread not in self.deleted:
                self.long.append(long)
            await self.rest(1)

    # Scans, and what waits for them.

    async def scan(self) -> None:
        for i in range(self.sizes.items):
            while self.load.going:
                r = await self.send("item", "PUT", "/store/items", {"namespace": ["scanned"], "key": str(i), "value": {"i": i, "text": "x" * self.sizes.item}})
                if r is not None:
                    break
                await self.rest()
        while self.load.going:
            jobs = [self.send("scan", "POST", "/store/items/search", {"namespace_prefix": ["scanned"], "filter": {"text": f"no {i}"}}, also=(422,)) for i in range(self.sizes.scans)]
            jobs += [self.send("scan", "POST", "/threads/search", {"values": {"tag": f"no {i}"}}, also=(422,)) for i in range(self.sizes.scans // 4)]
            for r in await asyncio.gather(*jobs):
                if r is not None and r.status_code == 200 and (r.json().get("items") if isinstance(r.json(), dict) else r.json()):
                    self.wrong.append(("a search found what is not there", r.text[:200]))
            await self.rest(3)

    async def probe(self, kind: str) -> None:
        """Times what should never wait for others, while its server is not troubled."""
        n = 0
        async with httpx.AsyncClient(timeout=60) as http:
            while self.load.going:
                await asyncio.sleep(0.1)
                steady = self.load.steady()
                if not steady:
                    continue
                url = self.rng.choice(steady)
                n += 1
                began, meanwhile = time.monotonic(), "+".join(k for k, c in self.doing.items() if c)
                late = asyncio.create_task(lateness())
                try:
                    if kind == "write":
                        what = "small", n
                        r = await http.put(f"{url}/store/items", json={"namespace": ["probe"], "key": "small", "value": value(*what, self.sizes)})
                        self.items["probe", "small"].wrote(what, r if r.status_code < 300 else None, True)
                    else:
                        r = await http.get(f"{url}/store/items", params={"namespace": "probe", "key": "small"})
                except httpx.TransportError as e:
                    if kind == "write":
                        self.items["probe", "small"].wrote(("small", n), None, isinstance(e, httpx.TimeoutException))
                    r = None
                took = time.monotonic() - began
                late.cancel()
                own = (await asyncio.gather(late, return_exceptions=True))[0]
                took -= own if isinstance(own, float) else 0
                if url in self.load.steady() and (r is None or r.status_code != 503):
                    self.waits[kind].append((took, began, meanwhile))

    def report(self) -> dict:
        waits = {kind: {"asked": len(w), "longest": round(max(w)[0], 2), "p99": round(sorted(w)[int(len(w) * 0.99)][0], 3)} for kind, w in self.waits.items() if w}
        return {"acknowledged": dict(self.acked), "unknown": dict(self.unknown), "refused": dict(self.refused), "waits": waits, "longest": {k: round(s, 1) for k, s in self.took.items() if s > 1}}


async def lateness() -> float:
    """How long this program kept its own tasks waiting, until it is cancelled."""
    late = 0.0
    while True:
        began = time.monotonic()
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            return late
        late += max(0, time.monotonic() - began - 0.06)


class Audit:
    """Compares what was acknowledged with what there is. Servers must be at rest."""

    def __init__(self, writes: Writes, check: Check) -> None:
        self.writes, self.check, self.load = writes, check, writes.load

    async def run(self) -> None:
        w = self.writes
        for kind, text in w.wrong:
            self.check.fail(kind, text)
        for kind, waits in w.waits.items():
            if late := [wait for wait in waits if wait[0] > w.patience]:
                self.check.fail(f"a plain {kind} waited too long", f"{len(late)} of {len(waits)} longer than {w.patience} s, the longest {max(late)}")
        # Whatever the machine: who waits for most of a long operation waits for all of it.
        for wait, began, _ in w.waits["write"]:
            for kind, since, until in w.heavy:
                if until - since > 3 and wait > max(2, 0.6 * (until - since)) and since < began + wait and began < until:
                    self.check.fail(f"a small write waited for a {kind}", f"{wait:.1f} s of {until - since:.1f} s")
        states = {}
        for s in w.shared:
            states[s.thread] = await self.thread(s.thread, s.updates, "shared thread")
            row = await self.get(f"/threads/{s.thread}")
            for key, (n, acked) in s.patches.items():
                if acked and row["metadata"].get(key) != n or not acked and row["metadata"].get(key, n) != n:
                    self.check.fail("metadata lost", f"{s.thread} {key}: {row['metadata'].get(key)} and not {n}, acknowledged: {acked}")
                if acked is False and key in row["metadata"]:
                    self.check.fail("metadata that was refused", f"{s.thread} {key}")
        for long in w.long:
            states[long.thread] = await self.thread(long.thread, long.updates, "long thread")
        for copy in w.copies:
            if copy.thread not in w.deleted:
                await self.copy(copy, states.get(copy.source.thread))
        await self.unknown_copies(states)
        for thread, register in w.states.items():
            if thread in w.deleted:
                continue
            state = await self.get(f"/threads/{thread}/state")
            self.register("state", thread, register, (state["values"] or {}).get("blob"))
        rows = {}
        for (thread, key), register in w.metadata.items():
            if thread not in w.deleted:
                rows[thread] = rows.get(thread) or await self.get(f"/threads/{thread}")
                self.register("metadata", f"{thread} {key}", register, rows[thread]["metadata"].get(key))
                if "never" in rows[thread]["metadata"]:
                    self.check.fail("metadata that was refused", thread)
        for (namespace, key), register in w.items.items():
            r = await self.load.get("/store/items", params={"namespace": namespace, "key": key})
            self.register("item", f"{namespace} {key}", register, (r.json() or {}).get("value") if r.status_code == 200 else None)
        for thread, acked in w.deleted.items():
            await self.gone(thread, acked)

    async def get(self, path: str) -> dict:
        r = await self.load.get(path)
        if r.status_code != 200:
            self.check.fail("cannot be read", f"{path}: {r.status_code} {r.text[:200]}")
            return {"values": {}, "metadata": {}}
        return r.json()

    def register(self, kind: str, where: str, register: Register, found: object) -> None:
        if not any(found == (None if what is None else value(*what, self.writes.sizes)) for what in register.may):
            text = json.dumps(found)
            self.check.fail(f"{kind} lost", f"{where}: {len(text)} bytes, {text[:80]} and not one of {register.may}")

    async def messages(self, thread: str) -> list[dict]:
        values = (await self.get(f"/threads/{thread}/state"))["values"]
        return values.get("messages", []) if isinstance(values, dict) else []

    async def thread(self, thread: str, updates: list[Update], kind: str) -> list[dict]:
        """Every update that was acknowledged is in the state and in the transcript, once and whole."""
        messages = await self.messages(thread)
        self.updates(thread, updates, [m["content"] for m in messages], kind)
        await self.check.events(thread, [m["content"] for m in messages], [text for u in updates if u.acked for text in u.texts])
        return messages

    def updates(self, thread: str, updates: list[Update], said: list[str], kind: str) -> None:
        mine: dict[str, list[str]] = collections.defaultdict(list)
        for text in said:
            mine[text.split(" ")[0]].append(text)
        for u in updates:
            found = mine.get(u.tag, [])
            if u.acked and found != u.texts:
                self.check.fail(f"state update of a {kind} lost", f"{thread} {u.tag}: {found[:5]} and not {u.texts[:5]}")
            elif u.acked is False and found:
                self.check.fail("state update that was refused", f"{thread} {u.tag}: {found[:5]}")
            elif found and found != u.texts:
                self.check.fail(f"state update of a {kind} torn", f"{thread} {u.tag}: {found[:5]} of {u.texts[:5]}")

    async def copy(self, copy: Copy, source: list[dict] | None) -> None:
        """A copy has what its source had, and nothing that came later on either of them."""
        messages = await self.messages(copy.thread)
        said = [m["content"] for m in messages]
        own = {text for u in copy.own for text in u.texts}
        self.updates(copy.thread, copy.own, said, "copy")
        copied = [m for m in messages if m["content"] not in own]
        if missing := set(copy.before) - set(said):
            self.check.fail("copy lacks messages of its source", f"{copy.thread} of {copy.source.thread}: {sorted(missing)[:5]}, {len(missing)} of {len(copy.before)}")
        if source is not None:
            self.prefix(copy.thread, copy.source.thread, copied, source)
        await self.check.events(copy.thread, said)
        row = await self.get(f"/threads/{copy.thread}")
        if lost := {k: n for k, n in copy.metadata.items() if row["metadata"].get(k) != n}:
            self.check.fail("copy lacks metadata of its source", f"{copy.thread} of {copy.source.thread}: {lost}")

    def prefix(self, thread: str, of: str, copied: list[dict], source: list[dict]) -> None:
        """A copy has the beginning of its source, and perhaps what a run had said at the time that was rolled back since."""
        if copied != source[:len(copied)]:
            n = next(i for i, m in enumerate(copied) if i >= len(source) or m != source[i])
            rest = {m["content"].split(" ")[0] for m in copied[n:]}
            if len(rest) == 1 and not rest & {m["content"].split(" ")[0] for m in source} and rest.pop().isdigit():  # tags of runs are numbers
                return
            self.check.fail("copy differs from its source", f"{thread} of {of} at {n} of {len(copied)}, {len(source)}: {str(copied[n])[:200]} and {str(source[n:n + 1])[:200]}")

    async def unknown_copies(self, states: dict[str, list[dict]]) -> None:
        """Those that nobody acknowledged are whole, if they are there."""
        known = {c.thread for c in self.writes.copies}
        for s in self.writes.shared:
            row = await self.get(f"/threads/{s.thread}")
            r = await self.load.post("/threads/search", {"metadata": {"shared": row["metadata"].get("shared")}, "limit": 1000})
            if r.status_code != 200:
                self.check.fail("threads cannot be searched", f"{r.status_code} {r.text[:200]}")
                continue
            for copy in r.json():
                if copy["thread_id"] not in known and copy["thread_id"] != s.thread:
                    self.prefix(copy["thread_id"], s.thread, await self.messages(copy["thread_id"]), states[s.thread])

    async def gone(self, thread: str, acked: bool) -> None:
        answers = {path: (await self.load.get(f"/threads/{thread}{path}")).status_code for path in ("", "/state", "/events")}
        if acked and set(answers.values()) != {404}:
            self.check.fail("deleted thread came back", f"{thread}: {answers}")
        elif not acked and len(set(answers.values())) != 1:
            self.check.fail("thread deleted in part", f"{thread}: {answers}")


async def settle(check: Check, writes: Writes, tasks: list[asyncio.Task], within: float, webhooks: float) -> int:
    """Waits for clients to end and for servers to rest, and compares everything with what was acknowledged. It gives how many webhooks are not sent yet."""
    load = check.load
    load.going = False
    done, late = await asyncio.wait(tasks, timeout=within)
    for task in done:
        if task.exception() is not None:
            check.fail("a client ended with an error", "".join(traceback.format_exception(task.exception())[-3:]))
    for task in late:
        check.fail("a client waits for ever", "; ".join(f"{f.f_code.co_name}:{f.f_lineno}" for f in task.get_stack()))
        task.cancel()
    await check.rest(120)
    client = get_client(url=load.urls[0])
    for thread, runs in load.threads.items():
        if thread in load.deleted:
            await check.gone(thread)
        else:
            await check.thread(client, thread, runs)
    await Audit(writes, check).run()
    unsent = await check.webhooks(webhooks)
    for text in load.unexpected:
        check.fail("unexpected answer", text)
    await load.http.aclose()
    return unsent


def report(check: Check, writes: Writes, memory: Memory, unsent: int) -> dict:
    """What both programs say at the end."""
    load = check.load
    every = [r for runs in load.threads.values() for r in runs]
    followed = [r for r in every if r.followed and r.id]
    acked = sum(r.id is not None for r in every)
    return {
        "threads": len(load.threads), "runs": len(every), "runs acknowledged": acked, "refused": load.refused, "ended": dict(check.statuses),
        "followed": len(followed), "rejoins": sum(r.joins - 1 for r in followed), "left": load.left, "early ends": load.early, "read slowly": load.slowly,
        "webhooks": {"taken": len(load.receivers.took), "left hanging": load.receivers.hung, "not sent yet": unsent},
        "writes": writes.report(), "acknowledged": acked + sum(writes.acked.values()) + sum(load.deleted.values()),
        "memory": {"limit": str(memory), "peak MiB": memory.peak}, "losses": sum(check.wrong.values()), "wrong": dict(check.wrong),
    }


def conclude(check: Check, facts: dict, folder: Path, keep: bool) -> int:
    """Prints what is wrong, and the facts in one line; exit code."""
    for kind, text in check.first.items():
        print(f"{kind}: {text[:2000]}", file=sys.stderr)
    if check.wrong:
        print(f"data and logs are in {folder}", file=sys.stderr)
    print(json.dumps(facts))
    if not check.wrong and not keep:
        shutil.rmtree(folder)
    return 1 if check.wrong else 0
