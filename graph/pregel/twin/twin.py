"""Runs graphs that JSON describes in LangGraph, and tells all that can be seen of them: events, errors, checkpoints, writes, states.

One case per line comes in, one answer per line goes out. case_test.go describes the form; interpret.go is the same in Go.
"""
from __future__ import annotations

import asyncio
import json
import logging
import operator
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "worker"))
import understudy_worker

# Modules that the worker has in common with the gate.
understudy_worker.__path__.append(str(Path(__file__).resolve().parents[3] / "internal" / "child" / "shared"))
warnings.filterwarnings("ignore")
logging.disable(logging.ERROR)

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import EphemeralValue, Topic, UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import IsLastStep, RemainingSteps
from langgraph.types import CachePolicy, Command, Overwrite, RetryPolicy, Send, StateUpdate, interrupt
from understudy_worker import drawing, jsonenc
from understudy_worker.errors import shown
from understudy_worker.inputs import command as to_command
from understudy_worker.streams import IDS, Shaper

KINDS = {
    "last": Any,
    "append": Annotated[list, operator.add],
    "add": Annotated[int, operator.add],
    "messages": Annotated[list, add_messages],
    "ephemeral": Annotated[Any, EphemeralValue],
    "topic": Annotated[list, Topic(Any)],
    "topic_all": Annotated[list, Topic(Any, True)],
    "untracked": Annotated[Any, UntrackedValue],
    "text": Annotated[str, operator.add],
    "float": Annotated[float, operator.add],
    "is_last_step": IsLastStep,
    "remaining_steps": RemainingSteps,
}
ERRORS = {"ValueError": ValueError, "KeyError": KeyError, "RuntimeError": RuntimeError}
PATIENCE = 20.0
MESSAGES = {"human": HumanMessage, "ai": AIMessage, "system": SystemMessage}


class Case:
    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.flags: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.cache = InMemoryCache()


def text_key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def operand(op: dict, state: Any) -> Any:
    if "from" in op:
        return state.get(op["from"])
    return op.get("value")


def message(op: dict) -> Any:
    if op["role"] == "tool":
        return ToolMessage(op["text"], tool_call_id=op.get("call", "c"), id=op.get("id"))
    return MESSAGES[op["role"]](op["text"], id=op.get("id"))


def program(case: Case, name: str, node: dict, graphs: dict, order: list):
    async def run(state):
        update: dict[str, Any] = {}
        commands: list[Any] = []
        for op in node.get("ops", ()):
            do = op["do"]
            if do == "set":
                update[op["key"]] = operand(op, state)
            elif do == "incr":
                update[op["key"]] = (state.get(op["key"]) or 0) + op.get("by", 1)
            elif do == "keys":
                update[op["key"]] = [f"{name}:{','.join(sorted(state))}"]
            elif do == "interrupt":
                answer = interrupt(op["value"])
                update[op["key"]] = [name, answer] if op.get("list") else answer
            elif do == "fail":
                case.counts[name] += 1
                if case.counts[name] <= op.get("times", 1 << 30):
                    raise ERRORS[op["kind"]](op["text"])
            elif do == "failif":
                if state.get(op["key"]) == op["equals"]:
                    raise ValueError(op["text"])
            elif do == "emit":
                get_stream_writer()(operand(op, state))
            elif do == "message":
                update.setdefault("messages", []).append(message(op))
            elif do == "remove":
                update.setdefault("messages", []).append(RemoveMessage(id=op["id"]))
            elif do == "overwrite":
                update[op["key"]] = Overwrite(op["value"])
            elif do == "after":
                await case.flags[op["node"]].wait()
            elif do == "hang":
                await asyncio.Event().wait()
            elif do == "call":
                out = await graphs[op["graph"]].ainvoke(operand(op, state))
                update[op["key"]] = out
            elif do == "command":
                kwargs: dict[str, Any] = {}
                if op.get("parent"):
                    kwargs["graph"] = Command.PARENT
                if op.get("update") is not None:
                    kwargs["update"] = op["update"]
                goto = [Send(g["node"], g["arg"]) if isinstance(g, dict) else g for g in op.get("goto") or ()]
                commands.append(Command(goto=goto, **kwargs))
            elif do == "nothing":
                return None
            elif do == "bad":
                return op["value"]
        if node.get("returns") in ("values", "struct"):  # in Go these have the order of the state
            update = {k: update[k] for k in [*order, *update] if k in update}
        if commands:
            return [*commands, update] if update else commands[0] if len(commands) == 1 else commands
        return update or None

    run.__name__ = name
    return run


def route(rule: dict):
    def choose(state):
        kind = rule["kind"]
        if kind == "by":
            return destination(rule.get("cases", {}).get(text_key(state.get(rule["key"])), rule["default"]))
        if kind == "const":
            return destination(rule["to"])
        return [Send(rule["node"], {rule["as"]: x}) for x in state.get(rule["key"]) or []]

    return choose


def destination(to: Any) -> Any:
    if isinstance(to, list):
        return [destination(t) for t in to]
    if isinstance(to, dict):
        if "raise" in to:
            raise ERRORS[to["raise"]](to["text"])
        return Send(to["node"], to["arg"])
    return to


def build(case: Case, desc: dict, saver: Any, name: str = "LangGraph"):
    if "functional" in desc:
        return functional(case, desc, saver)
    channels = {k: KINDS[v] for k, v in desc["channels"].items()}
    State = TypedDict("State", channels, total=False)

    def part(names, title):
        return TypedDict(title, {k: channels[k] for k in names}, total=False)

    graphs = {k: build(case, g, g.get("checkpointer")) for k, g in desc.get("graphs", {}).items()}
    kwargs = {}
    if "input" in desc:
        kwargs["input_schema"] = part(desc["input"], "In")
    if "output" in desc:
        kwargs["output_schema"] = part(desc["output"], "Out")
    b = StateGraph(State, **kwargs)
    for node in desc.get("nodes", ()):
        options: dict[str, Any] = {}
        if node.get("defer"):
            options["defer"] = True
        if retry := node.get("retry"):
            options["retry_policy"] = RetryPolicy(
                initial_interval=0.001, jitter=False, max_attempts=retry["max"],
                retry_on=(lambda names: lambda exc: type(exc).__name__ in names)(retry["on"]),
            )
        if node.get("cache"):
            options["cache_policy"] = CachePolicy(key_func=lambda x: jsonenc.dumps(x))
        if node.get("metadata"):
            options["metadata"] = node["metadata"]
        action = build(case, node["subgraph"], node["subgraph"].get("checkpointer")) if "subgraph" in node else program(case, node["name"], node, graphs, list(channels))
        b.add_node(node["name"], action, **options)
    for start, end in desc.get("edges", ()):
        b.add_edge(start, end)
    for i, br in enumerate(desc.get("branches", ())):
        choose = route(br["rule"])
        choose.__name__ = f"choose_{i}"
        if desc.get("typed"):
            choose.__annotations__ = {"state": State}
        b.add_conditional_edges(br["from"], choose, br.get("targets"))
    return b.compile(
        checkpointer=saver, interrupt_before=desc.get("before"), interrupt_after=desc.get("after"),
        cache=case.cache if any(n.get("cache") for n in desc["nodes"]) else None,
    )


def functional(case: Case, desc: dict, saver: Any):
    f = desc["functional"]
    tasks = {}
    for name, t in f.get("tasks", {}).items():
        tasks[name] = task(task_program(case, name, t), name=name)

    async def main(given, *, previous=None):
        variables = {"in": given, "prev": previous}
        for op in f["ops"]:
            do = op["do"]
            if do == "task":
                variables[op["to"]] = await tasks[op["name"]](variables[op["arg"]])
            elif do == "parallel":
                futures = [tasks[op["name"]](x) for x in variables[op["arg"]]]
                variables[op["to"]] = [await x for x in futures]
            elif do == "interrupt":
                variables[op["to"]] = interrupt(op["value"])
            elif do == "set":
                variables[op["to"]] = op["value"]
        if "save" in f:
            return entrypoint.final(value=variables[f["return"]], save=variables[f["save"]])
        return variables[f["return"]]

    main.__name__ = f["name"]
    return entrypoint(checkpointer=saver)(main)


def task_program(case: Case, name: str, t: dict):
    async def run(x):
        for op in t["ops"]:
            do = op["do"]
            if do == "double":
                x = x * 2
            elif do == "interrupt":
                x = [x, interrupt(op["value"])]
            elif do == "fail":
                case.counts[name] += 1
                if case.counts[name] <= op.get("times", 1 << 30):
                    raise ValueError(op["text"])
            elif do == "emit":
                get_stream_writer()(op["value"])
        return x

    run.__name__ = name
    return run


async def answer(desc: dict) -> dict:
    case = Case()
    saver = InMemorySaver() if desc.get("saver", True) else None
    try:
        graph = build(case, desc["graph"], saver)
    except Exception as exc:
        return {"compile": type(exc).__name__}
    out: dict[str, Any] = {"steps": [], "drawings": [drawn(graph, False), drawn(graph, True)]}
    ids: list[str] = []
    run, before = "", 0
    for i, step in enumerate(desc["steps"]):
        if step["op"] == "crash":
            crash(saver, step, before)
            ids = root_ids(saver)
            out["steps"].append({"events": [], "error": None})
            continue
        if "again" not in step:
            run, before = f"run{i}", len(ids)
        out["steps"].append(await perform(case, graph, saver, step, ids, run))
        if saver is not None:
            ids = root_ids(saver)
    if saver is not None:
        out["checkpoints"] = dump(saver)
        out["states"] = await states(graph, saver)
    return out


def drawn(graph: Any, xray: bool) -> Any:
    return drawing._plain(graph.get_graph(xray=xray).to_json())


def root_ids(saver: InMemorySaver) -> list[str]:
    return sorted(saver.storage["t"].get("", {})) if "t" in saver.storage else []


def crash(saver: InMemorySaver, step: dict, before: int) -> None:
    """Loses what was saved after some of the root checkpoints of a run."""
    ids = root_ids(saver)[: before + step.get("keep", 0)]
    last = ids[-1] if ids else ""
    for ns, rows in saver.storage["t"].items():
        for ident in [i for i in rows if i > last]:
            del rows[ident]
            saver.writes.pop(("t", ns, ident), None)
    if step.get("lose"):
        saver.writes.pop(("t", "", last), None)


def config_of(step: dict, ids: list[str], saver: Any, run: str) -> dict:
    conf: dict[str, Any] = {"thread_id": "t"}
    if (at := step.get("at")) is not None and ids:
        conf["checkpoint_id"] = ids[min(at, len(ids) - 1)]
        conf["checkpoint_ns"] = ""
    if (ns := step.get("ns")) is not None:
        known = [n for n in saver.storage["t"] if n.split(":")[0] == ns and "|" not in n and saver.storage["t"][n]]
        conf["checkpoint_ns"] = max(known, key=lambda n: max(saver.storage["t"][n]), default="")
    return {"configurable": conf, "metadata": {"run_id": run}, "recursion_limit": step.get("limit", 25)}


def asked(saver: InMemorySaver) -> dict:
    """The questions on the newest root checkpoint, by id, with the node and the question as text."""
    head = saver.get_tuple({"configurable": {"thread_id": "t"}})
    out = {}
    for (_, _), (_, channel, value, path) in saver.writes[("t", "", head.checkpoint["id"])].items() if head else ():
        if channel == "__interrupt__":
            for i in saver.serde.loads_typed(value):
                out[i.id] = (path.split(", ")[-1], jsonenc.dumps(i.value))
    return out


def attempted_before(saver: InMemorySaver, run: str) -> bool:
    ids = root_ids(saver)
    if not ids:
        return False
    return saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ids[-1]}}).metadata.get("run_id") == run


async def perform(case: Case, graph: Any, saver: Any, step: dict, ids: list[str], run: str) -> dict:
    events: list = []
    error = None
    case.flags.clear()
    config = config_of(step, ids, saver, run)
    try:
        if step["op"] == "update":
            steps = [
                [
                    StateUpdate(to_command(u["command"]) if u.get("command") else u.get("values"), u.get("as_node"), None)
                    for u in superstep
                ]
                for superstep in step["updates"]
            ]
            await graph.abulk_update_state(config, steps)
        else:
            given = step.get("input")
            if "command" in step:
                text = json.dumps(step["command"])
                if "$ask" in text:
                    for ident, (name, _) in asked(saver).items():
                        text = text.replace(f'"$ask {name}"', f'"{ident}"')
                    for k, ident in enumerate(sorted(asked(saver), key=lambda i: asked(saver)[i][1])):
                        text = text.replace(f'"$ask {k}"', f'"{ident}"')
                given = to_command(json.loads(text))
            again = step.get("again")
            if again == "null" or again == "input" and attempted_before(saver, run):
                given = None
            wanted = set(step["modes"])
            if step.get("durability") == "exit":
                wanted.discard(IDS)

            def emit(name: str, ns: str, data: bytes, checkpoint: str) -> None:
                events.append([name, ns, json.loads(data)])
                if name == "updates":
                    for node in events[-1][2]:
                        case.flags[node].set()

            shaper = Shaper(wanted, emit, False, set(), None)
            kwargs: dict[str, Any] = {}
            if "events" not in wanted:
                kwargs["output_keys"] = graph.output_channels  # as LangGraph Server
            for key in ("interrupt_before", "interrupt_after"):
                if key in step:
                    kwargs[key] = step[key]
            if saver is not None:
                kwargs["durability"] = step.get("durability", "async")
            subgraphs = step.get("subgraphs", False)
            async with asyncio.timeout(PATIENCE):
                async for part in graph.astream(given, config, stream_mode=Shaper.modes(wanted, False), subgraphs=subgraphs, **kwargs):
                    if subgraphs:
                        shaper.item(part[0], part[1], part[2])
                    else:
                        shaper.item((), part[0], part[1])
            shaper.flush()
    except Exception as exc:
        error = shown(exc)
    return {"events": events, "error": error}


def plain(value: Any) -> Any:
    return json.loads(jsonenc.dumps(value))


def dump(saver: InMemorySaver) -> list:
    out = []
    for ns in saver.storage["t"]:
        for ident in sorted(saver.storage["t"][ns]):
            t = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ns, "checkpoint_id": ident}})
            writes = [
                {"task": w[0], "index": key[1], "channel": w[1], "value": stored(saver.serde.loads_typed(w[2])), "path": w[3]}
                for key, w in saver.writes[("t", ns, ident)].items()
            ]
            c = t.checkpoint
            out.append({
                "ns": ns, "id": ident, "parent": t.parent_config["configurable"]["checkpoint_id"] if t.parent_config else None,
                "values": {k: stored(v) for k, v in c["channel_values"].items()},
                "versions": c["channel_versions"], "seen": c["versions_seen"], "updated": c.get("updated_channels"), "v": c["v"],
                "metadata": {k: t.metadata.get(k) for k in ("source", "step", "parents")},
                "writes": writes,
            })
    return out


def stored(value: Any) -> Any:
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (tuple, list)) and any(isinstance(v, (set, frozenset)) for v in value):
        return [stored(v) for v in value]
    return plain(value)


def shown_state(s: Any) -> dict:
    return {
        "values": plain(s.values), "next": list(s.next),
        "tasks": [
            {
                "id": t.id, "name": t.name, "path": plain(t.path), "error": None if t.error is None else error_text(t.error),
                "interrupts": [{"value": plain(i.value), "id": i.id} for i in t.interrupts], "result": plain(t.result),
                "state": shown_state(t.state) if hasattr(t.state, "values") and not isinstance(t.state, dict) else None,
            }
            for t in s.tasks
        ],
    }


def error_text(error: Any) -> str:
    return error if isinstance(error, str) else repr(error)


async def states(graph: Any, saver: InMemorySaver) -> dict:
    try:
        live = shown_state(await graph.aget_state({"configurable": {"thread_id": "t"}}, subgraphs=True))
    except Exception as exc:
        live = {"error": type(exc).__name__}
    records = []
    for ident in root_ids(saver):
        try:
            records.append(shown_state(await graph.aget_state({"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ident}})))
        except Exception as exc:
            records.append({"error": type(exc).__name__})
    return {"live": live, "records": records}


def main() -> None:
    for line in sys.stdin:
        desc = json.loads(line)
        global PATIENCE
        PATIENCE = desc.get("patience", 20.0)
        try:
            out = asyncio.run(answer(desc))
        except BaseException as exc:
            import traceback

            out = {"broken": "".join(traceback.format_exception(exc))[-4000:]}
        sys.stdout.buffer.write(jsonenc.dumps(out) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
