"""Writes snapshots.json: rows of threads as graphs left them, and the states and histories that LangGraph makes of them.

    pip install langgraph
    python gen.py

Checkpoints are described by the worker's own code, so that these files also show whether both sides agree on the format.
"""
from __future__ import annotations

import asyncio
import base64
import json
import operator
import pathlib
import sys
from typing import Annotated, Any

import orjson
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.channels import EphemeralValue, LastValue, Topic, UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Overwrite, RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent.parent / "graph" / "python" / "worker"))
import understudy_worker  # noqa: E402

# Modules that the worker has in common with the gate.
understudy_worker.__path__.append(str(here.parent.parent / "internal" / "child" / "shared"))
from understudy_worker.describe import Describer, Shapes, shape_of, tasks_json  # noqa: E402

THREAD = "t"
SERDE = JsonPlusSerializer()


class Saver(InMemorySaver):
    """Keeps what the worker would send along with a checkpoint."""

    def __init__(self):
        super().__init__(serde=SERDE)
        self.described: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.shapes: dict[str, bytes] = {}
        self.describer: Describer | None = None

    async def aput(self, config, checkpoint, metadata, new_versions):
        conf = config["configurable"]
        ns = conf["checkpoint_ns"]
        tasks, digest, shape = await self.describer.describe(config, checkpoint, metadata, ns)
        assert tasks is not None, "nobody described a checkpoint"
        self.described[(ns, checkpoint["id"])] = (tasks, digest)
        self.shapes[digest] = shape or self.shapes[digest]
        return await super().aput(config, checkpoint, metadata, new_versions)


# --- graphs ----------------------------------------------------------------------------

class Items(TypedDict, total=False):
    topic: str
    n: int
    items: Annotated[list[str], operator.add]
    answer: Any
    note: Annotated[Any, lambda old, new: new]


def add(name: str):
    return lambda state: {"items": [name]}


def build(schema, nodes, edges, **kw):
    b = StateGraph(schema)
    for name, fn in nodes.items():
        b.add_node(name, fn)
    for edge in edges:
        b.add_edge(*edge)
    return lambda saver: b.compile(checkpointer=saver, **kw)


def chain(schema, nodes, **kw):
    names = [START, *nodes, END]
    return build(schema, nodes, list(zip(names, names[1:])), **kw)


echo = chain(Items, {"echo": lambda s: {"n": s.get("n", 0) + 1}})

pipeline_nodes = {
    "plan": add("plan"), "work": lambda s: {"items": [s["topic"]]},
    "ask": lambda s: {"answer": interrupt({"question": "ok?", "items": s["items"]})},
}


def pipeline(saver):
    b = StateGraph(Items)
    for name, fn in pipeline_nodes.items():
        b.add_node(name, fn)
    b.add_edge(START, "plan")
    b.add_conditional_edges("plan", lambda s: [Send("work", {"topic": f"{s['topic']}-{i}"}) for i in range(3)], ["work"])
    b.add_edge("work", "ask")
    b.add_edge("ask", END)
    return b.compile(checkpointer=saver)


leaf = chain(Items, {"prepare": add("prepared"), "leaf_ask": lambda s: {"answer": interrupt("leaf?"), "items": ["leaf"]}})(None)
middle = chain(Items, {"m1": add("m1"), "leaf": leaf, "m2": add("m2")})(None)
nested = chain(Items, {"before": add("before"), "leaf": leaf, "after": add("after")})
deeper = chain(Items, {"before": add("before"), "middle": middle, "after": add("after")})


def boom(state):
    raise ValueError("boom: node failed")


failing = chain(Items, {"ok": add("ok"), "boom": boom})


async def rest(state):
    await asyncio.sleep(30)


slow = chain(Items, {"first": add("first"), "slow": rest})


def parallel_graph(slow_one):
    return build(Items, {"a": add("a"), "b": slow_one, "c": lambda s: {"answer": interrupt("c?"), "items": ["c"]}, "end": add("end")},
                 [(START, "a"), (START, "b"), (START, "c"), (["a", "b", "c"], "end"), ("end", END)])


parallel = parallel_graph(lambda s: {"items": [f"b {interrupt('b?')}"]})
parallel_failing = parallel_graph(boom)
parallel_rest = parallel_graph(rest)


def hop(state) -> Command:
    return Command(update={"items": ["hop"]}, goto="target")


goto = build(Items, {"hop": hop, "target": lambda s: {"answer": interrupt("t?")}, "other": add("other")}, [(START, "hop"), ("target", END), ("other", END)])
twice = chain(Items, {"twice": lambda s: [{"items": ["x"]}, {"items": ["y"], "note": None}, Command(update={"note": "z"})], "nothing": lambda s: None})
root_list = chain(Annotated[list, operator.add], {"one": lambda s: [1], "two": lambda s: [interrupt("?")]})


class Chat(TypedDict, total=False):
    messages: Annotated[list, add_messages]


@tool
def search(q: str) -> str:
    """Look something up."""
    return f"Found 10 results for {q}"


def model(state: Chat):
    if state["messages"][-1].type == "human":
        calls = [{"name": "search", "args": {"q": "x"}, "id": "call_1"}]
        return {"messages": [AIMessage("", id=f"a{len(state['messages'])}", tool_calls=calls)]}
    return {"messages": [AIMessage("done, ☃", id=f"a{len(state['messages'])}")]}


def agent(saver):
    b = StateGraph(Chat)
    b.add_node("model", model)
    b.add_node("tools", ToolNode([search]))
    b.add_edge(START, "model")
    b.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END])
    b.add_edge("tools", "model")
    return b.compile(checkpointer=saver)


class Odd(TypedDict, total=False):
    plain: str
    number: float
    passing: Annotated[str, EphemeralValue(str)]
    secret: Annotated[str, UntrackedValue(str)]
    queue: Annotated[list, Topic(str)]
    pile: Annotated[list, Topic(str, accumulate=True)]
    final: Annotated[str, LastValueAfterFinish(str)]
    by_name: Annotated[dict, operator.or_]
    tags: Annotated[set, operator.or_]


def odd_one(state):
    return {"plain": "é\"\\\n", "number": 2.0, "passing": "p", "secret": "s", "queue": "q1", "pile": "p1", "final": "f1", "by_name": {"a": 1}, "tags": {"t"}}


odd = chain(Odd, {"one": odd_one, "two": lambda s: {"pile": "p2", "plain": None, "by_name": {"b": (1, 2)}}, "three": lambda s: {"number": float("nan")}})


class Delta(TypedDict, total=False):
    log: Annotated[list, DeltaChannel(lambda old, new: [*old, *(x for w in new for x in w)], snapshot_frequency=2)]
    n: int


delta = chain(Delta, {f"d{i}": (lambda i: lambda s: {"log": [f"entry {i} " + "x" * 70], "n": i})(i) for i in range(4)})


class Stateful(TypedDict, total=False):
    items: Annotated[list[str], operator.add]


def stateful(saver):
    inner = chain(Stateful, {"count": lambda s: {"items": [f"count {len(s['items'])}"]}, "wait": lambda s: {"items": [interrupt("go?")]}})(True)
    return chain(Stateful, {"before": add("before"), "sub": inner})(saver)


def undeclared(saver):
    async def call(state):
        return {"items": (await leaf.ainvoke({"items": ["in"]}))["items"]}
    return chain(Items, {"call": call})(saver)


@task
def double(n: int) -> int:
    return 2 * n


def functional(saver):
    @entrypoint(checkpointer=saver)
    async def flow(n: int, *, previous: Any = None):
        doubled = await double(n)
        answer = interrupt({"doubled": doubled})
        return entrypoint.final(value={"answer": answer, "doubled": doubled, "previous": previous}, save=[doubled, previous])
    return flow


# --- what happens to the threads ---------------------------------------------------------

CASES: dict[str, tuple[Any, Any]] = {}


def case(graph):
    def register(fn):
        CASES[fn.__name__] = (graph, fn)
        return fn
    return register


@case(echo)
async def echo_case(run, g, cfg):
    await run({"n": 1})
    yield "once"
    await run({"n": 5})
    yield "twice"


@case(agent)
async def agent_case(run, g, cfg):
    await run({"messages": [HumanMessage("look", id="h1")]})
    yield "answered"
    await g.aupdate_state(cfg, {"messages": [RemoveMessage(id="a1"), HumanMessage("more", id="h2")]}, as_node="__start__")
    yield "edited"


@case(pipeline)
async def pipeline_case(run, g, cfg):
    await run({"topic": "a"})
    yield "waiting"
    await run(Command(resume="yes"))
    yield "done"


@case(pipeline)
async def pipeline_command(run, g, cfg):
    await run({"topic": "a"})
    await run(Command(resume="yes", update={"items": ["by command"], "topic": "new"}))
    yield "resumed with an update"


@case(pipeline)
async def pipeline_goto(run, g, cfg):
    await run({"topic": "a"})
    await run(Command(goto="plan"))
    yield "went back"


@case(pipeline)
async def pipeline_update(run, g, cfg):
    await run({"topic": "a"})
    await g.aupdate_state(cfg, {"answer": "edited"}, as_node="ask")
    yield "updated"


@case(nested)
async def nested_case(run, g, cfg):
    await run({})
    yield "waiting"
    await run(Command(resume="yes"))
    yield "done"


@case(nested)
async def nested_update(run, g, cfg):
    await run({})
    inner = (await g.aget_state(cfg, subgraphs=True)).tasks[0].state
    await g.aupdate_state(inner.config, {"items": ["edited"]})
    yield "edited inside"


@case(deeper)
async def deeper_case(run, g, cfg):
    await run({})
    yield "waiting"
    await run(Command(resume="yes"))
    yield "done"


@case(failing)
async def failing_case(run, g, cfg):
    await run({})
    yield "failed"
    await g.aupdate_state(cfg, {"items": ["mine"]}, as_node="ok")
    yield "updated"


@case(slow)
async def slow_case(run, g, cfg):
    await run({}, cancel=0.3)
    yield "cancelled"


@case(parallel)
async def parallel_case(run, g, cfg):
    await run({})
    yield "two waiting"
    first = next(t.interrupts[0].id for t in (await g.aget_state(cfg)).tasks if t.name == "b")
    await run(Command(resume={first: "for b"}))
    yield "one waiting"
    await run(Command(resume="for c"))
    yield "done"


@case(parallel_failing)
async def parallel_failing_case(run, g, cfg):
    await run({})
    yield "failed"


@case(parallel_rest)
async def parallel_rest_case(run, g, cfg):
    await run({}, cancel=0.3)
    yield "cancelled"


@case(goto)
async def goto_case(run, g, cfg):
    await run({})
    yield "waiting"


@case(goto)
async def goto_twice(run, g, cfg):
    await run({})
    await run(Command(goto="other", update={"n": 3}))
    yield "with an update"


@case(twice)
async def twice_case(run, g, cfg):
    await run({"items": ["in"]})
    yield "done"


@case(root_list)
async def root_case(run, g, cfg):
    await run([0])
    yield "waiting"
    await run(Command(resume=2))
    yield "done"


@case(odd)
async def odd_case(run, g, cfg):
    await run({"plain": "in"})
    yield "done"


@case(odd)
async def odd_break(run, g, cfg):
    await run({"plain": "in"}, interrupt_before=["two"])
    yield "before two"


@case(delta)
async def delta_case(run, g, cfg):
    await run({"log": ["in"]})
    yield "done"


@case(stateful)
async def stateful_case(run, g, cfg):
    await run({})
    yield "waiting"
    await run(Command(resume="yes"))
    yield "done"
    await run({})
    yield "again"


@case(undeclared)
async def undeclared_case(run, g, cfg):
    await run({})
    yield "waiting"


@case(functional)
async def functional_case(run, g, cfg):
    await run(4)
    yield "waiting"
    await run(Command(resume="yes"))
    yield "done"
    await run(5)
    await run(Command(resume="no"))
    yield "with a past"


@case(failing)
async def breakpoint_case(run, g, cfg):
    await run({}, interrupt_before=["boom"])
    yield "before boom"


@case(nested)
async def exit_case(run, g, cfg):
    await run({}, durability="exit")
    yield "waiting"
    await run(Command(resume="yes"), durability="exit")
    yield "done"


@case(pipeline)
async def exit_pipeline(run, g, cfg):
    await run({"topic": "a"}, durability="exit")
    await run(Command(resume="yes", update={"items": ["by command"]}), durability="exit")
    yield "done"


@case(parallel)
async def exit_parallel(run, g, cfg):
    await run({}, durability="exit")
    yield "waiting"


@case(pipeline)
async def fork_case(run, g, cfg):
    await run({"topic": "a"})
    old = [s async for s in g.aget_state_history(cfg)][-2]
    await g.aupdate_state(old.config, {"items": ["forked"]})
    yield "forked"
    await run(None)
    yield "ran"


@case(pipeline)
async def copy_case(run, g, cfg):
    await run({"topic": "a"})
    old = [s async for s in g.aget_state_history(cfg)][1]
    await g.aupdate_state(old.config, None, as_node="__copy__")
    yield "copied"


# --- dumping -----------------------------------------------------------------------------

def plain(v):
    if hasattr(v, "model_dump"):
        return v.model_dump()
    if isinstance(v, set):
        return list(v)
    if isinstance(v, Overwrite):
        return {"value": v.value}
    raise TypeError(type(v))


def to_json(v):
    return json.loads(orjson.dumps(v, default=plain, option=orjson.OPT_NON_STR_KEYS))


def address(config):
    return {k: v for k, v in config["configurable"].items() if k in ("checkpoint_ns", "checkpoint_id", "checkpoint_map")} if config else None


def shown_interrupt(i):
    return {"id": i.id, "value": i.value, **({"response_schema": i.response_schema} if i.response_schema else {})}


def shown(s):
    return {
        "values": s.values, "next": s.next, "metadata": s.metadata, "created_at": s.created_at, "checkpoint": address(s.config), "parent_checkpoint": address(s.parent_config),
        "tasks": [{
            "id": t.id, "name": t.name, "path": t.path, "error": t.error if t.error is None or isinstance(t.error, str) else repr(t.error), "interrupts": [shown_interrupt(i) for i in t.interrupts],
            "subgraph": t.state["configurable"]["checkpoint_ns"] if isinstance(t.state, dict) else None,
            "state": shown(t.state) if t.state is not None and not isinstance(t.state, dict) else None, "result": t.result,
        } for t in s.tasks],
        "interrupts": [shown_interrupt(i) for i in s.interrupts],
    }


def typed(kind, data):
    return {"type": kind, "data": base64.b64encode(data).decode()}


def rows(saver: Saver):
    """Rows as langgraph-checkpoint-postgres lays them out: primitives stay in the checkpoint, all else is in blobs."""
    out = []
    for ns, by_id in saver.storage[THREAD].items():
        for cid, (checkpoint, metadata, parent) in by_id.items():
            c = SERDE.loads_typed(checkpoint)
            inline, blobs = {}, []
            for channel, version in c["channel_versions"].items():
                kind, data = saver.blobs.get((THREAD, ns, channel, version), ("empty", b""))
                value = None if kind == "empty" else SERDE.loads_typed((kind, data))
                if kind != "empty" and (value is None or isinstance(value, str | int | float | bool)):
                    inline[channel] = value
                else:
                    blobs.append({"channel": channel, "version": version, **typed(kind, data)})
            tasks, digest = saver.described[(ns, cid)]
            out.append({
                "ns": ns, "id": cid, "parent": parent or "", "data": {**c, "channel_values": inline}, "metadata": to_json(SERDE.loads_typed(metadata)), "blobs": blobs,
                "tasks": json.loads(tasks), "shape": digest,
                "writes": [{"task": t, "index": i, "channel": ch, **typed(kind, data), "path": path} for (t, i), (_, ch, (kind, data), path) in sorted(saver.writes[(THREAD, ns, cid)].items())],
            })
    return out


async def dump(name, graph, saver: Saver):
    def at(ns="", cid=None):
        return {"configurable": {"thread_id": THREAD, "checkpoint_ns": ns, **({"checkpoint_id": cid} if cid else {})}}

    namespaces, answers = {}, []
    for ns, by_id in list(saver.storage[THREAD].items()):
        namespaces[ns] = {
            "live": shown(await graph.aget_state(at(ns))), "deep": shown(await graph.aget_state(at(ns), subgraphs=True)),
            "history": [shown(s) async for s in graph.aget_state_history(at(ns))],
            "deep_records": [shown(await graph.aget_state(at(ns, cid), subgraphs=True)) for cid in sorted(by_id, reverse=True)],
        }
        for cid in by_id:
            for live in (False, True):
                s = await graph.aget_state(at(ns, None if live else cid))
                if live and s.config["configurable"]["checkpoint_id"] != cid:
                    continue
                answers.append({"ns": ns, "id": cid, "live": live, "values": s.values, "tasks": json.loads(tasks_json(s.tasks)), "shape": saver.described[(ns, cid)][1]})
    return to_json({"name": name, "rows": rows(saver), "shapes": {k: json.loads(v) for k, v in saver.shapes.items()}, "answers": answers, "namespaces": namespaces})


async def main() -> None:
    out = []
    for name, (make, steps) in CASES.items():
        saver = Saver()
        graph = make(saver)
        saver.describer = Describer(graph, Shapes(), SERDE)
        cfg = {"configurable": {"thread_id": THREAD}}

        async def run(input, cancel=None, **kw):
            job = asyncio.ensure_future(graph.ainvoke(input, cfg, **kw))
            if cancel:
                await asyncio.sleep(cancel)
                job.cancel()
            try:
                await job
            except (ValueError, asyncio.CancelledError):
                pass

        async for stage in steps(run, graph, cfg):
            out.append(await dump(f"{name}/{stage}", graph, saver))
    (here / "snapshots.json").write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "\n]\n")


if __name__ == "__main__":
    asyncio.run(main())
