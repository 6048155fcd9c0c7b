"""Random requests for sequences.py. Which they are depends on the seed, and on how many runs and checkpoints the threads have."""
from __future__ import annotations

import json
import random
import re
import uuid
from dataclasses import dataclass, field

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


# How often each method of Sequence is taken.
WEIGHTS = {
    "create": 6, "supersteps": 2, "patch": 3, "get": 4, "delete": 1, "copy": 1, "prune": 0.3, "search": 3, "extract": 1, "count": 1,
    "wait": 12, "stream": 14, "background": 3, "rejoined": 2, "scheduled": 1, "stateless": 3, "batch": 0.5,
    "state": 6, "subgraph_state": 2, "set_state": 6, "history": 6,
    "runs": 3, "run": 3, "join": 3, "drop_run": 1, "cancel": 1, "cancel_many": 0.5,
    "cron": 3, "patch_cron": 2, "crons": 2, "count_crons": 0.5, "drop_cron": 1,
    "assistant": 3, "patch_assistant": 2, "versions": 2, "latest": 1, "search_assistants": 2, "count_assistants": 0.5, "assistant_parts": 2, "drop_assistant": 0.5,
    "put_item": 3, "item": 2, "items": 2, "drop_item": 1, "namespaces": 1,
}


@dataclass
class Request:
    method: str
    path: str
    body: dict | list | None = None
    params: dict | None = None
    headers: dict = field(default_factory=dict)
    ends_pending: bool = False  # it cancels or deletes a run that did not begin

    @property
    def thread(self):
        """The thread that it is about, or None."""
        found = re.search(r"/threads/([0-9a-f-]{36})", self.path)
        return found[1] if found else self.body.get("thread_id") if isinstance(self.body, dict) and self.path in ("/threads", "/runs/cancel") else None

    @property
    def route(self):
        return re.sub(r"/threads/[0-9a-f-]{36}", "/threads/ID", self.path)

    @property
    def runs(self):
        """Whether it adds checkpoints to its thread, or may."""
        return self.method == "POST" and bool(re.fullmatch(r"/threads/ID/(runs|runs/wait|runs/stream|state)", self.route)) and "after_seconds" not in self.body

    @property
    def background(self):
        return self.runs and self.route == "/threads/ID/runs"

    @property
    def creates_cron(self):
        return self.method == "POST" and self.path.endswith("/runs/crons")

    @property
    def sorted_by(self):
        return self.body.get("sort_by") if isinstance(self.body, dict) and self.path.endswith("/search") else None

    def __str__(self):
        return " ".join([self.method, self.path, json.dumps(self.body) if self.body is not None else "", str(self.params or ""), str(self.headers or "")]).rstrip()


class Sequence:
    def __init__(self, seed):
        self.r = random.Random(seed)
        salt = random.SystemRandom().getrandbits(100)  # the same seed may run twice on a server
        self.tag = f"seq-{seed}-{salt:x}"
        self.threads = [str(uuid.UUID(int=self.r.getrandbits(128) ^ salt, version=4)) for _ in range(3)]
        self.assistants = [str(uuid.UUID(int=self.r.getrandbits(128) ^ salt, version=4)) for _ in range(2)]
        self.graph = {t: self.r.choice(list(GRAPHS)) for t in self.threads}
        self.counts = {}      # thread -> how many runs and checkpoints it has
        self.crons_made = 0
        self.changed = set()  # assistants whose graph, configuration or context changed
        self.waiting = []     # requests that come next, before anything else

    def next(self):
        if not self.waiting:
            kind = self.r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            made = getattr(self, kind)(self.r.choice(self.threads), self.r.choice(self.assistants))
            self.waiting = made if isinstance(made, list) else [made]
        return self.waiting.pop(0)

    # --- what requests refer to

    def checkpoint_of(self, t):
        return f"{{checkpoint:{t}:{self.r.randrange(max(1, self.counts.get(t, (0, 0))[1]))}}}"

    def run_of(self, t):
        return f"{{run:{t}:{self.r.randrange(max(1, self.counts.get(t, (0, 0))[0] + 1))}}}"

    def cron_of(self):
        return f"{{cron::{self.r.randrange(self.crons_made + 1)}}}"

    def maybe(self, p, made):
        """made with the probability p, else nothing."""
        return made if self.r.random() < p else {}

    @property
    def meta(self):
        return {"tag": self.tag}

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
            ("checkpoint_id", 0.15, lambda: self.checkpoint_of(t)),
            ("checkpoint", 0.1, lambda: {"checkpoint_id": self.checkpoint_of(t), "checkpoint_ns": ""}),
            ("if_not_exists", 0.3, lambda: r.choice(["create", "reject"])),
            ("durability", 0.2, lambda: r.choice(["sync", "async", "exit"])),
            ("on_completion", 0.05, lambda: r.choice(["keep", "delete"])),
            ("stream_resumable", 0.1, lambda: True),
        ):
            if r.random() < p:
                b[key] = make()
        return b

    def cron_body(self):
        """Of a schedule that does not come while this runs."""
        r = self.r
        graph = r.choice(list(GRAPHS))
        b = {"assistant_id": graph if r.random() < 0.8 else r.choice(self.assistants), "schedule": r.choice(["0 0 1 1 *", "30 4 29 2 *"]), "metadata": self.meta | {"n": r.randrange(3)}}
        for key, p, make in (
            ("input", 0.8, lambda: GRAPHS[graph](r)),
            r.choice([("config", 0.3, lambda: r.choice([{"tags": ["a"]}, {"configurable": {"x": 1}}])), ("context", 0.2, lambda: {"who": "me"})]),
            ("interrupt_before", 0.1, lambda: ["model"]),
            ("enabled", 0.2, lambda: r.random() < 0.5),
            ("timezone", 0.2, lambda: r.choice(["Europe/Berlin", "nowhere"])),
            ("stream_mode", 0.2, lambda: r.choice(["values", ["updates", "custom"]])),
            ("multitask_strategy", 0.2, lambda: r.choice(["reject", "enqueue"])),
            ("on_run_completed", 0.2, lambda: r.choice(["delete", "keep"])),
            ("durability", 0.1, lambda: "exit"),
        ):
            if r.random() < p:
                b[key] = make()
        return b

    # --- threads

    def create(self, t, _):
        return Request("POST", "/threads", {"thread_id": t, "metadata": self.meta | {"n": self.r.randrange(3)}} | self.maybe(0.6, {"if_exists": self.r.choice(["raise", "do_nothing"])}))

    def supersteps(self, t, _):
        r, graph = self.r, self.graph[t]
        steps = [{"updates": [{"values": GRAPHS[graph](r), "as_node": r.choice(["__start__", "__input__", "model", "call", "a"])}]} for _ in range(r.choice([1, 2]))]
        return Request("POST", "/threads", {"thread_id": t, "metadata": self.meta | {"graph_id": graph}, "supersteps": steps} | self.maybe(0.3, {"graph_id": graph}))

    def patch(self, t, _):
        return Request("PATCH", f"/threads/{t}", {"metadata": self.r.choice([{"p": self.r.randrange(3)}, {"n": None}, {}])})

    def get(self, t, _):
        return Request("GET", f"/threads/{t}")

    def delete(self, t, _):
        return Request("DELETE", f"/threads/{t}")

    def copy(self, t, _):
        return Request("POST", f"/threads/{t}/copy")

    def prune(self, t, _):
        return Request("POST", "/threads/prune", {"thread_ids": [t], "strategy": "delete"})

    def search(self, *_):
        r = self.r
        b = {"metadata": self.meta | self.maybe(0.3, {"n": r.randrange(3)}), "limit": r.choice([1, 2, 10]), "sort_by": r.choice(["created_at", "updated_at", "status"]), "sort_order": r.choice(["asc", "desc"])}
        b |= self.maybe(0.3, {"status": r.choice(["idle", "busy", "interrupted", "error"])})
        b |= self.maybe(0.2, {"select": r.sample(["thread_id", "status", "values", "metadata", "interrupts"], 3)})
        b |= self.maybe(0.2, {"offset": 1})
        if b["sort_by"] == "status":  # equal ones are in any order
            b["limit"] = 10
            b.pop("offset", None)
        return Request("POST", "/threads/search", b)

    def extract(self, *_):
        paths = {"last": "values.messages[-1].content", "first": "values.messages[0].type", "n": "metadata.n", "graph": "metadata.graph_id", "trail": "values.trail"}
        return Request("POST", "/threads/search", {"metadata": self.meta, "extract": {k: paths[k] for k in self.r.sample(list(paths), 2)}, "sort_by": "created_at", "select": ["thread_id", "created_at"]})

    def count(self, *_):
        return Request("POST", "/threads/count", {"metadata": self.meta} | self.maybe(0.5, {"status": self.r.choice(["idle", "interrupted"])}))

    # --- runs

    def wait(self, t, _):
        return Request("POST", f"/threads/{t}/runs/wait", self.body(t))

    def stream(self, t, _):
        return Request("POST", f"/threads/{t}/runs/stream", self.body(t))

    def background(self, t, _):
        return Request("POST", f"/threads/{t}/runs", self.body(t))

    def rejoined(self, t, _):
        """A run of which the events are kept, read again when it is over."""
        b = self.body(t) | {"stream_resumable": True}
        b.pop("multitask_strategy", None)
        params = self.r.choice([None, None, {"stream_mode": "values"}])
        return [Request("POST", f"/threads/{t}/runs", b), Request("GET", f"/threads/{t}/runs/{{run:{t}:-1}}/stream", None, params, {"Last-Event-ID": "-1"})]

    def scheduled(self, t, _):
        """A run that keeps its thread busy without running, and what can happen to it."""
        r = self.r
        pending = f"/threads/{t}/runs/{{run:{t}:-1}}"
        looks = [Request("GET", f"/threads/{t}"), Request("GET", f"/threads/{t}/runs", None, {"status": "pending"}), Request("GET", pending), Request("POST", f"/threads/{t}/runs/wait", self.body(t) | {"multitask_strategy": "reject"})]
        ends = [Request("POST", f"{pending}/cancel", None, {"wait": "true", "action": "interrupt"}), Request("POST", f"{pending}/cancel", None, {"wait": "false", "action": "rollback"}), Request("DELETE", pending),
                Request("POST", "/runs/cancel", {"thread_id": t, "run_ids": [f"{{run:{t}:-1}}"]}), Request("DELETE", f"/threads/{t}")]
        b = {"assistant_id": self.graph[t], "input": GRAPHS[self.graph[t]](r), "after_seconds": 1000} | self.maybe(0.3, {"if_not_exists": "create"}) | self.maybe(0.3, {"metadata": {"k": 1}})
        end = r.choice(ends)
        end.ends_pending = True
        whole = [Request("POST", f"/threads/{t}/runs", b), *r.sample(looks, 2), end, Request("GET", f"/threads/{t}"), Request("GET", f"/threads/{t}/runs", None, {"limit": 3})]
        # The reference lets a thread whose run is deleted be busy from then on.
        return whole if end is ends[0] else [*whole, Request("DELETE", f"/threads/{t}")]

    def stateless_body(self, t):
        b = self.body(t)
        for key in ("checkpoint_id", "checkpoint", "multitask_strategy"):
            b.pop(key, None)
        return b

    def stateless(self, t, _):
        return Request("POST", f"/runs/{self.r.choice(['wait', 'stream'])}", self.stateless_body(t))

    def batch(self, t, _):
        return Request("POST", "/runs/batch", [self.stateless_body(t) for _ in range(self.r.choice([1, 2]))])

    def runs(self, t, _):
        r = self.r
        return Request("GET", f"/threads/{t}/runs", None, {"limit": r.choice([1, 2, 10])} | self.maybe(0.4, {"status": r.choice(["success", "error", "interrupted"])}) | self.maybe(0.2, {"offset": 1}) | self.maybe(0.1, {"select": ["run_id", "status"]}))

    def run(self, t, _):
        return Request("GET", f"/threads/{t}/runs/{self.run_of(t)}")

    def join(self, t, _):
        return Request("GET", f"/threads/{t}/runs/{self.run_of(t)}/join")

    def drop_run(self, t, _):
        return Request("DELETE", f"/threads/{t}/runs/{self.run_of(t)}")

    def cancel(self, t, _):
        return Request("POST", f"/threads/{t}/runs/{self.run_of(t)}/cancel", None, {"wait": "true", "action": self.r.choice(["interrupt", "rollback"])})

    def cancel_many(self, t, _):
        return Request("POST", "/runs/cancel", {"thread_id": t, "run_ids": [self.run_of(t), self.run_of(t)]})

    # --- states

    def state(self, t, _):
        path = f"/threads/{t}/state" + (f"/{self.checkpoint_of(t)}" if self.r.random() < 0.3 else "")
        return Request("GET", path, None, self.maybe(0.3, {"subgraphs": "true"}) or None)

    def subgraph_state(self, t, _):
        return Request("POST", f"/threads/{t}/state/checkpoint", {"checkpoint": {"checkpoint_id": self.checkpoint_of(t), "checkpoint_ns": ""}, "subgraphs": self.r.random() < 0.5})

    def set_state(self, t, _):
        r = self.r
        b = {"values": r.choice([GRAPHS[self.graph[t]](r), {"n": 5}, None, {"messages": "hi"}])}
        b |= self.maybe(0.5, {"as_node": r.choice(["__start__", "model", "tools", "a", "__end__", "call", "nowhere"])})
        return Request("POST", f"/threads/{t}/state", b | self.maybe(0.3, {"checkpoint_id": self.checkpoint_of(t)}))

    def history(self, t, _):
        r = self.r
        if r.random() < 0.2:
            return Request("GET", f"/threads/{t}/history", None, {"limit": r.choice([1, 3])} | self.maybe(0.3, {"before": self.checkpoint_of(t)} if self.counts.get(t, (0, 0))[1] else {}))
        b = {"limit": r.choice([1, 3, 10])}
        if self.counts.get(t, (0, 0))[1]:
            b |= self.maybe(0.3, {"before": {"configurable": {"checkpoint_id": self.checkpoint_of(t)}}})  # the only form that the reference accepts
        b |= self.maybe(0.2, {"metadata": {"source": r.choice(["loop", "input", "update", "fork"])}})
        return Request("POST", f"/threads/{t}/history", b | self.maybe(0.1, {"checkpoint": {"checkpoint_id": self.checkpoint_of(t)}}))

    # --- crons

    def cron(self, t, _):
        self.crons_made += 1
        return Request("POST", self.r.choice(["/runs/crons", f"/threads/{t}/runs/crons"]), self.cron_body())

    def patch_cron(self, *_):
        r, b = self.r, self.cron_body()
        return Request("PATCH", f"/runs/crons/{self.cron_of()}", {k: b[k] for k in r.sample(list(b), min(len(b), r.choice([0, 1, 2]))) if k != "assistant_id"})

    def crons(self, t, a):
        r = self.r
        b = {"metadata": self.meta, "sort_by": "created_at", "limit": r.choice([2, 10])}
        b |= self.maybe(0.3, {"enabled": r.random() < 0.5}) | self.maybe(0.2, {"thread_id": t}) | self.maybe(0.2, {"offset": 1}) | self.maybe(0.2, {"sort_order": "asc"}) | self.maybe(0.1, {"select": ["cron_id", "schedule"]})
        return Request("POST", "/runs/crons/search", b)

    def count_crons(self, t, _):
        return Request("POST", "/runs/crons/count", {"thread_id": t} | self.maybe(0.5, {"metadata": self.meta}))

    def drop_cron(self, *_):
        return Request("DELETE", f"/runs/crons/{self.cron_of()}")

    # --- assistants

    def assistant(self, _, a):
        r = self.r
        b = {"assistant_id": a, "graph_id": r.choice(["echo", "agent", "hitl", "contextual"]), "metadata": self.meta, "name": r.choice(["A", "B"])}
        b |= r.choice([{}, {"config": {"configurable": {"x": r.randrange(3)}}}, {"context": {"who": "c"}}, {"config": {"tags": ["t"], "recursion_limit": 30}}])
        return Request("POST", "/assistants", b | self.maybe(0.5, {"if_exists": r.choice(["raise", "do_nothing"])}))

    def patch_assistant(self, _, a):
        b = self.r.choice([{"name": "C"}, {"metadata": {"z": 1}}, {"config": {"configurable": {"y": 1}}}, {"context": {"who": "d"}}, {"graph_id": "echo"}, {"description": "d"}, {}])
        if b.keys() & {"config", "context", "graph_id"}:
            self.changed.add(a)
        return Request("PATCH", f"/assistants/{a}", b)

    def versions(self, _, a):
        return Request("POST", f"/assistants/{a}/versions", {"limit": self.r.choice([1, 10])} | self.maybe(0.3, {"metadata": self.meta}))

    def latest(self, t, a):
        if a in self.changed:  # brings graph and context back, which the reference leaves
            return self.versions(t, a)
        return Request("POST", f"/assistants/{a}/latest", {"version": self.r.choice([1, 2, 9])})

    def search_assistants(self, *_):
        b = {"metadata": self.meta, "sort_by": self.r.choice(["name", "created_at", "updated_at"]), "limit": 10}
        return Request("POST", "/assistants/search", b | self.maybe(0.3, {"graph_id": "echo"}) | self.maybe(0.3, {"name": "A"}))

    def count_assistants(self, *_):
        return Request("POST", "/assistants/count", {"metadata": self.meta} | self.maybe(0.3, {"graph_id": "echo"}) | self.maybe(0.3, {"name": "a"}))

    def assistant_parts(self, _, a):
        return Request("GET", f"/assistants/{a}{self.r.choice(['', '/schemas', '/graph', '/subgraphs'])}")

    def drop_assistant(self, _, a):
        return Request("DELETE", f"/assistants/{a}")

    # --- items

    def namespace(self):
        return [self.tag, *self.r.choice([[], ["x"], ["x", "y"]])]

    def put_item(self, *_):
        return Request("PUT", "/store/items", {"namespace": self.namespace(), "key": self.r.choice("abc"), "value": self.r.choice([{"v": self.r.randrange(3)}, {"v": {"w": [1]}}, {}])})

    def item(self, *_):
        return Request("GET", "/store/items", None, {"namespace": ".".join(self.namespace()), "key": self.r.choice("abc")})

    def items(self, *_):
        b = {"namespace_prefix": self.namespace(), "limit": self.r.choice([1, 10])}
        return Request("POST", "/store/items/search", b | self.maybe(0.4, {"filter": self.r.choice([{"v": 1}, {"v": {"$gt": 0}}, {"v": {"$ne": 1}}])}) | self.maybe(0.2, {"offset": 1}))

    def drop_item(self, *_):
        return Request("DELETE", "/store/items", {"namespace": self.namespace(), "key": self.r.choice("abc")})

    def namespaces(self, *_):
        return Request("POST", "/store/namespaces", {"prefix": [self.tag], "limit": 10} | self.maybe(0.5, {"max_depth": self.r.choice([1, 2])}))
