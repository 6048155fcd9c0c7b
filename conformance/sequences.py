#!/usr/bin/env python3
"""Sends the same random sequences of requests to two servers and lists where their answers differ.

  conformance/sequences.py REFERENCE SERVER [--seed N] [--count N] [--length N]

Both serve graphs/. Each sequence works on threads, assistants and items of its own: it creates, runs, answers interrupts, forks, writes states,
copies, searches and deletes, in an order that depends on the seed only. Runs and checkpoints are named by their place in the order of their creation,
so both servers get the same request.

Compared are status codes and whole bodies, of streams all events. What servers are free to choose (ids, times, versions) is replaced by the number
of its first appearance in the sequence. Of refusals only the status counts. A sequence ends at its first difference, and where LangGraph Server's
in-memory storage fails or it resets a connection.

Differences that docs/differences.md lists are left out, each by a rule: see Facts, trim, left_out and normal. The others are printed.

The exit code is 1 when there are differences.
"""
from __future__ import annotations

import argparse
import json
import random
import re
import sys
import threading
import uuid
from dataclasses import dataclass

import httpx

UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
# Of facts that each server states about itself, or that depend on the clock.
FREE = {"kwargs", "__pregel_node_finished", "checkpoint_during", "langgraph_version", "langgraph_api_version", "langgraph_plan", "langgraph_host", "langgraph_api_url", "user-agent", "host", "x-request-id", "request_id", "langgraph_request_id", "ts", "timestamp",
        "next_run_date", "score", "k8s", "cumulative_duration", "langgraph_auth_user_id", "langgraph_auth_permissions", "langgraph_auth_user", "__request_start_time_ms__", "x-host", "accept", "accept-encoding", "connection", "content-length", "content-type"}


# Keys that the reference adds by accident: internals of LangGraph, and of what a graph is made with.
OWN = {"__pregel_node_finished", "langgraph_auth_user_id", "langgraph_auth_permissions"}
# In metadata, and only of graphs that a factory made: from the configurable with which it was called, that of the requests (x, y) too.
OF_FACTORIES = {"langgraph_request_id", "checkpoint_ns", "checkpoint_id", "thread_id", "user_id", "x", "y"}
# Errors of its in-memory storage, of runs that would succeed on another.
BROKEN = ("'NoneType' object is not iterable", "_put_checkpoint_fut")


@dataclass
class Facts:
    """What the reference says about a thread, as far as it decides which of its answers are compared."""
    graph: str = ""       # of its newest run
    newest: str = ""      # of the run that made its newest checkpoint
    updated: bool = False  # the last change was a state update at a named checkpoint
    inside: bool = False  # the last run streamed the events of a subgraph
    parked: bool = False  # the last run began at an older checkpoint and made none
    joining: bool = False  # a join of several edges is next
    dropped: bool = False  # a run was deleted after the last one

    @property
    def foreign(self):
        return self.newest != self.graph

    def loose(self):
        """Keys of the thread that are not compared.

        A checkpoint is read with the graph that made it; there with the one of the newest run. After a state update that names a checkpoint, the
        thread shows the new one; there the one that was updated. A thread shows its own state; there that of the subgraph whose events
        came last, or of an older checkpoint at which a run did nothing. A join of several edges is a task; there nothing seems to be next.
        When a run is deleted, the thread steps back with its state; there it stays.
        """
        keys = set()
        if self.foreign or self.parked or self.dropped or self.updated:
            keys |= {"values", "interrupts", "status", "error"}
        if self.joining:
            keys |= {"interrupts", "status"}
        if self.inside:
            keys |= {"values", "interrupts"}
        return keys


class Server:
    def __init__(self, url):
        self.http = httpx.Client(base_url=url, timeout=60)
        self.reset()

    def reset(self):
        self.names = {}
        self.runs = {}         # thread -> run ids, in the order of creation
        self.checkpoints = {}  # thread -> root checkpoint ids, oldest first
        self.facts = {}        # thread -> Facts

    def name(self, text):
        return self.names.setdefault(text.replace("-", ""), f"#{len(self.names)}")

    def normal(self, value, key=""):
        if key in FREE:
            return "…"
        if isinstance(value, dict):
            value = restored(value)
            factory = key == "metadata" and value.get("graph_id", "factory") == "factory"
            return {self.normal(k): self.normal(v, k) for k, v in sorted(value.items()) if k not in OWN and not (factory and k in OF_FACTORIES)}
        if isinstance(value, list):
            return [self.normal(v) for v in value]
        if isinstance(value, str):
            return UUID.sub(lambda m: self.name(m[0]), TIME.sub("time", value))
        return value

    def ask(self, method, path, body=None, params=None):
        path = self.filled(path)
        body = self.filled(body)
        r = self.http.request(method, path, json=body, params=params) if body is not None else self.http.request(method, path, params=params)
        kind = r.headers.get("content-type", "")
        if "event-stream" in kind:
            return r.status_code, self.normal(events(r.text))
        try:
            return r.status_code, r.json()
        except ValueError:
            return r.status_code, r.text

    def filled(self, value):
        """Replaces references like {run:T:N} and {checkpoint:T:N}."""
        if isinstance(value, dict):
            return {k: self.filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.filled(v) for v in value]
        if isinstance(value, str):
            def one(m):
                known = (self.runs if m[1] == "run" else self.checkpoints).get(m[2], [])
                return known[int(m[3])] if int(m[3]) < len(known) else "00000000-0000-4000-8000-00000000dead"
            return re.sub(r"\{(run|checkpoint):([0-9a-f-]+):(\d+)\}", one, value)
        return value

    def look(self, thread):
        """Learns the runs and checkpoints of a thread."""
        for _ in range(3):
            try:
                r = self.http.get(f"/threads/{thread}/runs", params={"limit": 100})
                break
            except httpx.TransportError:
                pass
        self.runs[thread] = [x["run_id"] for x in reversed(r.json())] if r.status_code == 200 else []
        r = self.http.post(f"/threads/{thread}/history", json={"limit": 1000})
        history = r.json() if r.status_code == 200 else []
        self.checkpoints[thread] = [x["checkpoint"]["checkpoint_id"] for x in reversed(history)]
        facts = self.facts.setdefault(thread, Facts())
        r = self.http.get(f"/threads/{thread}")
        facts.graph = facts.newest = (r.json()["metadata"].get("graph_id") if r.status_code == 200 else None) or ""
        newest = history[0]["metadata"] if history else {}
        facts.newest = newest.get("graph_id") or facts.graph
        facts.joining = bool(history) and joining(history[0])


def joining(state):
    """Whether the node "join" of the graph "branches" is next, which the reference does not show."""
    trail = state["values"].get("trail") or []
    return state["next"] == [] and len(trail) >= 3 and trail[-1] != "joined"


def restored(value):
    """A message whose usage the reference moved: it does so when a Command updates messages."""
    extra = value.get("additional_kwargs")
    if not isinstance(extra, dict) or not {"invalid_tool_calls", "usage_metadata"} <= extra.keys():
        return value
    rest = {k: v for k, v in extra.items() if k not in ("invalid_tool_calls", "usage_metadata")}
    return value | {"additional_kwargs": rest, "usage_metadata": extra["usage_metadata"]}


def events(text):
    out = []
    for block in re.split(r"\r?\n\r?\n", text):
        event = data = None
        for line in block.splitlines():
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:"):
                data = line[5:].strip()
        if event:
            try:
                data = json.loads(data) if data else data
            except ValueError:
                pass
            out.append([event, data])
    return out


GRAPHS = {
    "echo": lambda r: {"n": r.randrange(9)},
    "agent": lambda r: {"messages": [{"role": "user", "content": r.choice(["say 2", "hello", 'call search {"q": "x"}'])}]},
    "hitl": lambda r: {"messages": [{"role": "user", "content": r.choice(["say 2", 'call search {"q": "x"}'])}]},
    "failing": lambda r: r.choice([{}, {"messages": [{"role": "user", "content": "say 1"}]}]),
    "parent": lambda r: {"messages": [{"role": "user", "content": "say 2"}]},
    "nested": lambda r: {"messages": [{"role": "user", "content": "say 1"}]},
    "branches": lambda r: {},
    "narrow": lambda r: {"n": 1, "question": "q", "messages": []},
    "contextual": lambda r: {},
    "factory": lambda r: {"messages": [{"role": "user", "content": "say 1"}]},
    "kinds": lambda r: {},
    "memory": lambda r: {"messages": [{"role": "user", "content": "say 1"}]},
    "pipeline": lambda r: {"topic": "t"},
}
WITH_SUBGRAPHS = ("nested", "parent", "narrow")


class Sequence:
    def __init__(self, seed):
        self.r = random.Random(seed)
        salt = random.SystemRandom().getrandbits(100)  # the same seed may run twice on a server
        self.tag = f"seq-{seed}-{salt:x}"
        self.threads = [str(uuid.UUID(int=self.r.getrandbits(128) ^ salt, version=4)) for _ in range(3)]
        self.assistants = [str(uuid.UUID(int=self.r.getrandbits(128) ^ salt, version=4)) for _ in range(2)]
        self.graph = {t: self.r.choice(list(GRAPHS)) for t in self.threads}
        self.counts = {}
        self.changed = set()  # assistants whose graph, configuration or context changed

    def thread(self):
        return self.r.choice(self.threads)

    def checkpoint(self, t):
        return f"{{checkpoint:{t}:{self.r.randrange(max(1, self.counts.get(t, (0, 0))[1]))}}}"

    def run(self, t):
        return f"{{run:{t}:{self.r.randrange(max(1, self.counts.get(t, (0, 0))[0] + 1))}}}"

    def body(self, t):
        r = self.r
        graph = self.graph[t] if r.random() < 0.95 else r.choice(list(GRAPHS))
        b = {"assistant_id": graph if r.random() < 0.8 else r.choice(self.assistants)}
        kind = r.random() if self.counts.get(t, (0, 0))[1] else 0
        if kind < 0.6:
            b["input"] = GRAPHS[graph](r)
        elif kind < 0.75:
            b["command"] = {"resume": r.choice(["yes", {"decisions": [{"type": "approve"}]}, {"decisions": [{"type": "reject", "message": "no"}]}, 1, {"a": "b"}])}
        elif kind < 0.8:
            b["command"] = {"update": GRAPHS[graph](r)}
        elif kind < 0.85:
            b["command"] = {"goto": r.choice(["__end__", "model", "a", "nowhere"])}
        elif kind < 0.95:
            b["input"] = None
        for key, p, make in (
            ("metadata", 0.2, lambda: {"k": r.randrange(3)}),
            ("config", 0.2, lambda: r.choice([{"tags": ["a"]}, {"recursion_limit": r.choice([1, 2, 50])}, {"configurable": {"x": 1}}, {"metadata": {"m": 1}}])),
            ("context", 0.1, lambda: {"who": "me"}),
            ("stream_mode", 0.6, lambda: r.sample(["values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "messages", "events"][: r.choice([2, 5, 8])], r.choice([1, 1, 2]))),
            ("stream_subgraphs", 0.3, lambda: True),
            ("interrupt_before", 0.1, lambda: r.choice(["*", ["model"], ["tools"], ["a"]])),
            ("interrupt_after", 0.1, lambda: r.choice(["*", ["model"], ["a"]])),
            ("multitask_strategy", 0.2, lambda: r.choice(["reject", "enqueue", "interrupt", "rollback"])),
            ("checkpoint_id", 0.15, lambda: self.checkpoint(t)),
            ("checkpoint", 0.1, lambda: {"checkpoint_id": self.checkpoint(t), "checkpoint_ns": ""}),
            ("if_not_exists", 0.3, lambda: r.choice(["create", "reject"])),
            ("durability", 0.2, lambda: r.choice(["sync", "async", "exit"])),
            ("on_completion", 0.05, lambda: r.choice(["keep", "delete"])),
            ("stream_resumable", 0.1, lambda: True),
        ):
            if r.random() < p:
                b[key] = make()
        return b

    def step(self):
        r, t, a = self.r, self.thread(), self.r.choice(self.assistants)
        pick = r.choices(
            ["create", "patch", "get", "delete", "copy", "wait", "stream", "stateless", "state", "set", "history", "search", "count", "runs", "run", "join", "drop_run", "cancel",
             "assistant", "change_assistant", "versions", "latest", "assistants", "drop_assistant", "put", "item", "items", "drop_item", "namespaces", "get_assistant", "background", "subgraph_state", "prune"],
            [6, 3, 4, 1, 1, 12, 14, 3, 6, 6, 6, 3, 1, 3, 3, 3, 1, 1, 3, 2, 2, 1, 2, 0.5, 3, 2, 2, 1, 0, 2, 3, 2, 0.3])[0]
        meta = {"tag": self.tag}
        if pick == "create":
            return "POST", "/threads", {"thread_id": t, "metadata": meta | {"n": r.randrange(3)}, **({"if_exists": r.choice(["raise", "do_nothing"])} if r.random() < 0.6 else {})}, None
        if pick == "patch":
            return "PATCH", f"/threads/{t}", {"metadata": r.choice([{"p": r.randrange(3)}, {"n": None}, {}])}, None
        if pick == "get":
            return "GET", f"/threads/{t}", None, None
        if pick == "delete":
            return "DELETE", f"/threads/{t}", None, None
        if pick == "copy":
            return "POST", f"/threads/{t}/copy", None, None
        if pick in ("wait", "stream"):
            return "POST", f"/threads/{t}/runs/{pick}", self.body(t), None
        if pick == "background":
            return "POST", f"/threads/{t}/runs", self.body(t), None
        if pick == "stateless":
            b = self.body(t)
            for key in ("checkpoint_id", "checkpoint", "multitask_strategy"):
                b.pop(key, None)
            return "POST", f"/runs/{r.choice(['wait', 'stream'])}", b, None
        if pick == "state":
            p = {"subgraphs": "true"} if r.random() < 0.3 else None
            return "GET", f"/threads/{t}/state" + (f"/{self.checkpoint(t)}" if r.random() < 0.3 else ""), None, p
        if pick == "subgraph_state":
            return "POST", f"/threads/{t}/state/checkpoint", {"checkpoint": {"checkpoint_id": self.checkpoint(t), "checkpoint_ns": ""}, "subgraphs": r.random() < 0.5}, None
        if pick == "set":
            b = {"values": r.choice([GRAPHS[self.graph[t]](r), {"n": 5}, None, {"messages": "hi"}])}
            if r.random() < 0.5:
                b["as_node"] = r.choice(["__start__", "model", "tools", "a", "__end__", "call", "nowhere"])
            if r.random() < 0.3:
                b["checkpoint_id"] = self.checkpoint(t)
            return "POST", f"/threads/{t}/state", b, None
        if pick == "history":
            b = {"limit": r.choice([1, 3, 10])}
            if r.random() < 0.3 and self.counts.get(t, (0, 0))[1]:
                b["before"] = {"configurable": {"checkpoint_id": self.checkpoint(t)}}  # the only form that the reference accepts
            if r.random() < 0.2:
                b["metadata"] = {"source": r.choice(["loop", "input", "update", "fork"])}
            if r.random() < 0.1:
                b["checkpoint"] = {"checkpoint_id": self.checkpoint(t)}
            return "POST", f"/threads/{t}/history", b, None
        if pick == "search":
            b = {"metadata": meta | ({"n": r.randrange(3)} if r.random() < 0.3 else {}), "limit": r.choice([1, 2, 10]), "sort_by": r.choice(["created_at", "updated_at", "status"]), "sort_order": r.choice(["asc", "desc"])}
            if r.random() < 0.3:
                b["status"] = r.choice(["idle", "busy", "interrupted", "error"])
            if r.random() < 0.2:
                b["select"] = r.sample(["thread_id", "status", "values", "metadata", "interrupts"], 3)
            if r.random() < 0.2:
                b["offset"] = 1
            if b["sort_by"] == "status":  # equal ones are in any order
                b["limit"] = 10
                b.pop("offset", None)
            return "POST", "/threads/search", b, None
        if pick == "count":
            return "POST", "/threads/count", {"metadata": meta} | ({"status": r.choice(["idle", "interrupted"])} if r.random() < 0.5 else {}), None
        if pick == "runs":
            return "GET", f"/threads/{t}/runs", None, {"limit": r.choice([1, 2, 10]), **({"status": r.choice(["success", "error", "interrupted"])} if r.random() < 0.4 else {}), **({"offset": 1} if r.random() < 0.2 else {})}
        if pick == "run":
            return "GET", f"/threads/{t}/runs/{self.run(t)}", None, None
        if pick == "join":
            return "GET", f"/threads/{t}/runs/{self.run(t)}/join", None, None
        if pick == "drop_run":
            return "DELETE", f"/threads/{t}/runs/{self.run(t)}", None, None
        if pick == "cancel":
            return "POST", f"/threads/{t}/runs/{self.run(t)}/cancel", None, {"wait": "true", "action": r.choice(["interrupt", "rollback"])}
        if pick == "assistant":
            return "POST", "/assistants", {"assistant_id": a, "graph_id": r.choice(["echo", "agent", "hitl", "contextual"]), "metadata": meta, "name": r.choice(["A", "B"]),
                                           **r.choice([{}, {"config": {"configurable": {"x": r.randrange(3)}}}, {"context": {"who": "c"}}, {"config": {"tags": ["t"], "recursion_limit": 30}}]),
                                           **({"if_exists": r.choice(["raise", "do_nothing"])} if r.random() < 0.5 else {})}, None
        if pick == "change_assistant":
            b = r.choice([{"name": "C"}, {"metadata": {"z": 1}}, {"config": {"configurable": {"y": 1}}}, {"context": {"who": "d"}}, {"graph_id": "echo"}, {"description": "d"}, {}])
            if b.keys() & {"config", "context", "graph_id"}:
                self.changed.add(a)
            return "PATCH", f"/assistants/{a}", b, None
        if pick == "latest" and a not in self.changed:  # brings graph and context back, which the reference leaves
            return "POST", f"/assistants/{a}/latest", {"version": r.choice([1, 2, 9])}, None
        if pick in ("versions", "latest"):
            return "POST", f"/assistants/{a}/versions", {"limit": r.choice([1, 10]), **({"metadata": meta} if r.random() < 0.3 else {})}, None
        if pick == "assistants":
            return "POST", "/assistants/search", {"metadata": meta, "sort_by": r.choice(["name", "created_at", "updated_at"]), "limit": 10, **({"graph_id": "echo"} if r.random() < 0.3 else {}), **({"name": "A"} if r.random() < 0.3 else {})}, None
        if pick == "get_assistant":
            return "GET", f"/assistants/{a}{r.choice(['', '/schemas', '/graph', '/subgraphs'])}", None, None
        if pick == "drop_assistant":
            return "DELETE", f"/assistants/{a}", None, None
        ns = [self.tag, *r.choice([[], ["x"], ["x", "y"]])]
        if pick == "put":
            return "PUT", "/store/items", {"namespace": ns, "key": r.choice("abc"), "value": r.choice([{"v": r.randrange(3)}, {"v": {"w": [1]}}, {}])}, None
        if pick == "item":
            return "GET", "/store/items", None, {"namespace": ".".join(ns), "key": r.choice("abc")}
        if pick == "items":
            return "POST", "/store/items/search", {"namespace_prefix": ns, "limit": r.choice([1, 10]), **({"filter": r.choice([{"v": 1}, {"v": {"$gt": 0}}, {"v": {"$ne": 1}}])} if r.random() < 0.4 else {}), **({"offset": 1} if r.random() < 0.2 else {})}, None
        if pick == "drop_item":
            return "DELETE", "/store/items", {"namespace": ns, "key": r.choice("abc")}, None
        if pick == "prune":
            return "POST", "/threads/prune", {"thread_ids": [t], "strategy": "delete"}, None
        return "POST", "/store/namespaces", {"prefix": [self.tag], **({"max_depth": r.choice([1, 2])} if r.random() < 0.5 else {}), "limit": 10}, None


def difference(a, b, path=""):
    """The first place where two values differ."""
    if type(a) is not type(b):
        return path, a, b
    if isinstance(a, dict):
        for k in sorted(set(a) | set(b)):
            if k not in a or k not in b:
                return f"{path}.{k}", a.get(k, "absent"), b.get(k, "absent")
            if d := difference(a[k], b[k], f"{path}.{k}"):
                return d
        return None
    if isinstance(a, list):
        for i, (x, y) in enumerate(zip(a, b)):
            if d := difference(x, y, f"{path}[{i}]"):
                return d
        return None if len(a) == len(b) else (f"{path}: length", len(a), len(b))
    return None if a == b else (path, a, b)


def trim(path, body, facts, x, y):
    """Removes from two answers with equal status what docs/differences.md explains. facts are those of each thread of the sequence."""
    route = re.sub(r"/threads/[0-9a-f-]{36}", "/threads/ID", path)
    thread = re.search(r"/threads/([0-9a-f-]{36})", path)
    f = facts.get(thread[1] if thread else (body or {}).get("thread_id"), Facts())
    if x == y == "":  # of a deletion
        return
    if route in ("/threads", "/threads/ID", "/threads/search"):
        for a, b in zip(*(v if isinstance(v, list) else [v] for v in (x, y))):
            if route != "/threads/search":
                loose = f.loose()
            elif "thread_id" in a:
                loose = facts.get(a["thread_id"], Facts()).loose()
            else:
                loose = set().union(*(f.loose() for f in facts.values()))
            if "interrupts" not in a and b.get("interrupts") == {}:  # selected, of a thread that never ran
                loose = loose | {"interrupts"}
            if "values" not in a:  # of a copy that did not run yet
                loose = loose | {"values"}
            for key in loose:
                a.pop(key, None)
                b.pop(key, None)
    elif route == "/threads/ID/history" or route.startswith("/threads/ID/state"):
        for a, b in zip(*(v if isinstance(v, list) else [v] for v in (x, y))):
            if "metadata" not in a:  # the answer to an update
                continue
            if a["metadata"] is None and a["checkpoint"] is None:  # an unknown checkpoint of a thread without a graph
                b["checkpoint"] = b["checkpoint_id"] = None
            other = (a["metadata"] or {}).get("graph_id", f.graph) != f.graph
            for key in ("values", "next", "tasks", "interrupts") if other else ("next", "tasks") if joining(a) and b["next"] == ["join"] else ():
                a[key] = b[key] = None


def left_out(path, body, facts, status):
    """Whether docs/differences.md explains any difference between two answers. status is that of the reference."""
    f = facts.get((re.search(r"/threads/([0-9a-f-]{36})", path) or [None, None])[1], Facts())
    if path in ("/threads/search", "/threads/count") and ("status" in body or body.get("sort_by") == "status"):
        return any("status" in f.loose() for f in facts.values()) or body.get("sort_by") == "status" and "select" in body
    if path == "/store/items/search":  # it fails when it compares numbers with objects; pages of items in another order
        return status == 500 and body.get("filter") == {"v": {"$gt": 0}} or body["limit"] == 1 or "offset" in body
    return path.endswith("/join") and bool(f.loose()) or path.endswith("/runs/wait") and f.foreign


def main():
    p = argparse.ArgumentParser()
    p.add_argument("reference")
    p.add_argument("server")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--length", type=int, default=60)
    args = p.parse_args()
    both = [Server(args.reference), Server(args.server)]
    asked = differ = 0
    for seed in range(args.seed, args.seed + args.count):
        s = Sequence(seed)
        for server in both:
            server.reset()
        for n in range(args.length):
            method, path, body, params = s.step()
            out, reset = [None, None], [False, False]

            def one(i):
                try:
                    out[i] = both[i].ask(method, path, body, params)
                except httpx.HTTPError as exc:
                    out[i] = (0, repr(exc))
                    reset[i] = isinstance(exc, httpx.TransportError) and i == 0
            jobs = [threading.Thread(target=one, args=(i,)) for i in (0, 1)]
            for j in jobs:
                j.start()
            for j in jobs:
                j.join()
            asked += 1
            if reset[0]:
                break
            touched = re.search(r"/threads/([0-9a-f-]{36})", path)
            if touched or body and body.get("thread_id"):
                t = touched[1] if touched else body["thread_id"]
                if path.endswith("/runs") and method == "POST":  # background: until it is over
                    for i in (0, 1):
                        if out[i][0] == 200:
                            both[i].http.get(f"/threads/{t}/runs/{out[i][1]['run_id']}/join")
                for server in both:
                    server.look(t)
                facts = both[0].facts[t]
                if method == "POST" and re.search(r"/(runs|runs/wait|runs/stream|state)$", path) and out[0][0] == 200:
                    facts.inside = facts.graph in WITH_SUBGRAPHS and bool(body.get("stream_subgraphs"))
                    facts.parked = bool(body.keys() & {"checkpoint", "checkpoint_id"}) and len(both[0].checkpoints[t]) == s.counts.get(t, (0, 0))[1]
                    facts.dropped = False
                    facts.updated = path.endswith("/state") and bool(body.keys() & {"checkpoint", "checkpoint_id"})
                elif method == "DELETE" and out[0][0] == 204:
                    facts.dropped = True
                s.counts[t] = len(both[0].runs[t]), len(both[0].checkpoints[t])
            (a, x), (b, y) = out
            if any(why in json.dumps(x) for why in BROKEN):
                break
            if a == b and 400 <= a < 500:
                continue
            facts = both[0].facts
            if left_out(path, body, facts, a):
                continue
            if isinstance(x, list) and path.endswith("/runs") or isinstance(x, dict) and "run_id" in x:  # the reference leaves it out for some threads that it makes for a run
                for v in (x, y):
                    for row in v if isinstance(v, list) else [v]:
                        if isinstance(row, dict):
                            (row.get("metadata") or {}).pop("graph_id", None)
            found = None
            if a != b:
                found = "status", a, b
            else:
                if path == "/store/items/search":
                    x, y = ({"items": sorted(v["items"], key=lambda i: (i["namespace"], i["key"]))} for v in (x, y))
                elif path == "/threads/search" and body["sort_by"] == "status":
                    x, y = (sorted(v, key=lambda t: t["created_at"]) for v in (x, y))
                trim(path, body, facts, x, y)
                x, y = both[0].normal(x), both[1].normal(y)
                found = difference(x, y)
            if found is None and touched and [len(both[0].runs[t]), len(both[0].checkpoints[t])] != [len(both[1].runs[t]), len(both[1].checkpoints[t])]:
                found = "runs and checkpoints after it", [len(both[0].runs[t]), len(both[0].checkpoints[t])], [len(both[1].runs[t]), len(both[1].checkpoints[t])]
            if found:
                differ += 1
                where, was, is_ = found
                print(f"seed {seed} step {n}: {method} {path} {json.dumps(body) if body else ''} {params or ''}\n  {where}: {json.dumps(was)[:300]} | {json.dumps(is_)[:300]}", flush=True)
                if a != b:
                    print(f"    {str(x)[:200]} | {str(y)[:200]}")
                break  # what follows differs too
    print(f"{asked} requests, {differ} of {args.count} sequences differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
