"""What sequences.py compares of two answers: where they differ, and what docs/differences.md explains."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sequence_requests import WITH_SUBGRAPHS

UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
# Of facts that each server states about itself, or that depend on the clock.
FREE = {"__pregel_node_finished", "checkpoint_during", "langgraph_version", "langgraph_api_version", "langgraph_plan", "langgraph_host", "langgraph_api_url", "user-agent", "host", "x-request-id", "request_id", "langgraph_request_id", "ts", "timestamp",
        "next_run_date", "score", "k8s", "cumulative_duration", "langgraph_auth_user_id", "langgraph_auth_permissions", "langgraph_auth_user", "__request_start_time_ms__", "x-host", "accept", "accept-encoding", "connection", "content-length", "content-type"}

# Keys that the reference adds by accident: internals of LangGraph, and of what a graph is made with.
OWN = {"__pregel_node_finished", "langgraph_auth_user_id", "langgraph_auth_permissions"}
# In metadata, and only of graphs that a factory made: from the configurable with which it was called, that of the requests (x, y, who) too.
OF_FACTORIES = {"langgraph_request_id", "checkpoint_ns", "checkpoint_id", "thread_id", "user_id", "x", "y", "who"}
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
    stuck: bool = False   # a run that had not begun was deleted

    def learn(self, request, status, grew):
        """Takes in what a request changed. grew says that the thread has more checkpoints than before."""
        if request.runs and status == 200:
            named = bool(request.body.keys() & {"checkpoint", "checkpoint_id"})
            self.inside = self.graph in WITH_SUBGRAPHS and bool(request.body.get("stream_subgraphs"))
            self.parked = named and not grew
            self.dropped = False
            self.updated = named and request.path.endswith("/state")
        elif request.method == "DELETE" and status == 204:
            self.dropped = True
        self.stuck = request.ends_pending or self.stuck and request.method == "GET"

    @property
    def foreign(self):
        return self.newest != self.graph

    def loose(self):
        """Keys of the thread that are not compared.

        A checkpoint is read with the graph that made it; there with the one of the newest run. After a state update that names a checkpoint, the
        thread shows the new one; there the one that was updated. A thread shows its own state; there that of the subgraph whose events
        came last, or of an older checkpoint at which a run did nothing. A join of several edges is a task; there nothing seems to be next.
        When a run is deleted, the thread steps back with its state; there it stays, busy if the run had not begun.
        """
        keys = {"status"} if self.stuck else set()
        if self.foreign or self.parked or self.dropped or self.updated:
            keys |= {"values", "interrupts", "status", "error"}
        if self.joining:
            keys |= {"interrupts", "status"}
        if self.inside:
            keys |= {"values", "interrupts"}
        return keys


def joining(state):
    """Whether the node "join" of the graph "branches" is next, which the reference does not show."""
    trail = state["values"].get("trail") or []
    return state["next"] == [] and len(trail) >= 3 and trail[-1] != "joined"


def of_kwargs(kwargs):
    """The arguments of a run without what the reference adds for itself, and what its in-memory storage loses of them, some of it when the run begins:
    of configurable the keys of the request that the context of the graph does not have."""
    config = kwargs.get("config") or {}
    configurable = {k: v for k, v in config.get("configurable", {}).items() if not k.startswith("__") and (k, v) != ("checkpoint_ns", "") and k != "who"}
    return kwargs | {"config": {k: v for k, v in config.items() if k != "metadata"} | {"configurable": configurable}}


def restored(value):
    """A message whose usage the reference moved: it does so when a Command updates messages."""
    extra = value.get("additional_kwargs")
    if not isinstance(extra, dict) or not {"invalid_tool_calls", "usage_metadata"} <= extra.keys():
        return value
    rest = {k: v for k, v in extra.items() if k not in ("invalid_tool_calls", "usage_metadata")}
    return value | {"additional_kwargs": rest, "usage_metadata": extra["usage_metadata"]}


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


def trim(request, facts, x, y):
    """The two answers, of equal status, without what docs/differences.md explains. facts are those of each thread of the sequence."""
    route, f = request.route, facts.get(request.thread, Facts())
    if x == y == "":  # of a deletion
        return x, y
    if route == "/store/items/search":
        x, y = ({"items": sorted(v["items"], key=lambda i: (i["namespace"], i["key"]))} for v in (x, y))
    elif route == "/store/namespaces":  # those of which all items were deleted
        x = {"namespaces": [n for n in x["namespaces"] if n in y["namespaces"]]}
    elif request.sorted_by in ("status", "name"):  # equal ones are in any order
        x, y = (sorted(v, key=lambda row: row["created_at"]) for v in (x, y))
    pairs = list(zip(*(v if isinstance(v, list) else [v] for v in (x, y))))
    if route in ("/threads", "/threads/ID", "/threads/search"):
        for a, b in pairs:
            trim_thread(a, b, f if route != "/threads/search" else None, facts)
    elif route == "/threads/ID/history" or route.startswith("/threads/ID/state"):
        for a, b in pairs:
            trim_state(a, b, f)
    elif any(isinstance(a, dict) and "run_id" in a for a, _ in pairs):
        for row in sum(pairs, ()):
            (row.get("metadata") or {}).pop("graph_id", None)  # the reference leaves it out for some threads that it makes for a run
    return x, y


def trim_thread(a, b, f, facts):
    """f are the facts of the thread, if it is known which it is."""
    if f is not None:
        loose = f.loose()
    elif "thread_id" in a:
        loose = facts.get(a["thread_id"], Facts()).loose()
    else:
        loose = set().union(*(f.loose() for f in facts.values()))
    if "interrupts" not in a and b.get("interrupts") == {}:  # selected, of a thread that never ran
        loose = loose | {"interrupts"}
    if "values" not in a:  # of a copy that did not run yet
        loose = loose | {"values"}
    if "error" not in a and b.get("error", "") is None:  # of a thread of which a run was cancelled before it began
        loose = loose | {"error", "interrupts"}
    if "values" in loose:
        loose = loose | {"extracted"}
    for key in loose:
        a.pop(key, None)
        b.pop(key, None)


def trim_state(a, b, f):
    if "metadata" not in a:  # the answer to an update
        return
    if a["metadata"] is None and a["checkpoint"] is None:  # an unknown checkpoint of a thread without a graph
        b["checkpoint"] = b["checkpoint_id"] = None
    other = (a["metadata"] or {}).get("graph_id", f.graph) != f.graph
    for key in ("values", "next", "tasks", "interrupts") if other else ("next", "tasks") if joining(a) and b["next"] == ["join"] else ():
        a[key] = b[key] = None


def explained(request, facts, status):
    """Whether docs/differences.md explains any difference between two answers. status is that of the reference."""
    path, body, f = request.path, request.body, facts.get(request.thread, Facts())
    if path in ("/threads/search", "/threads/count") and ("status" in body or body.get("sort_by") == "status"):
        return any("status" in f.loose() for f in facts.values()) or body.get("sort_by") == "status" and "select" in body
    if path == "/store/items/search":  # it fails when it compares numbers with objects; pages of items in another order
        return status == 500 and body.get("filter") == {"v": {"$gt": 0}} or body["limit"] == 1 or "offset" in body
    if path == "/runs/wait" and body.get("on_completion") == "keep" and "values" not in body.get("stream_mode", ["values"]):
        return True  # its answer is empty
    return path.endswith("/join") and bool(f.loose()) or path.endswith("/runs/wait") and f.foreign


def broken(request, status, answer):
    """Whether a run of the reference failed in its in-memory storage, or it kept the half of a refused creation."""
    return any(why in json.dumps(answer) for why in BROKEN) or status == 400 and "supersteps" in (request.body or {})


def normal(value, name, key=""):
    """value with ids replaced by name(id), times by "time", and what servers are free to choose by "…"."""
    if key in FREE:
        return "…"
    if isinstance(value, dict):
        if key == "kwargs":
            value = of_kwargs(value)
        value = restored(value)
        factory = key == "metadata" and value.get("graph_id", "factory") == "factory"
        return {normal(k, name): normal(v, name, k) for k, v in sorted(value.items()) if k not in OWN and not (factory and k in OF_FACTORIES)}
    if isinstance(value, list):
        return [normal(v, name) for v in value]
    if isinstance(value, str):
        return UUID.sub(lambda m: name(m[0]), TIME.sub("time", value))
    return value
