"""What the graph alone can say of a checkpoint: its next tasks, and the shape of the graph at that namespace."""
from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, copy_checkpoint
from langgraph.pregel import Pregel

try:
    from langgraph._internal._typing import MISSING
except ImportError:
    from langgraph.typing import MISSING  # type: ignore[no-redef]

try:
    from langgraph.pregel._algo import prepare_next_tasks
    from langgraph.pregel._checkpoint import achannels_from_checkpoint
except ImportError:  # a langgraph whose parts are elsewhere: its public methods say the same, for twice the time
    prepare_next_tasks = None

log = logging.getLogger(__name__)


class _One(BaseCheckpointSaver[str]):
    """A saver that knows one checkpoint."""

    def __init__(self, known: CheckpointTuple) -> None:
        self._known = known

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        conf = config["configurable"]
        if conf.get("checkpoint_id") != self._known.checkpoint["id"]:
            return None
        return self._known

    def get_next_version(self, current, channel):
        # Only applied writes ask for it, and there are none.
        return current

    def with_allowlist(self, extra_allowlist):
        return self


def recast(ns: str) -> str:
    """A namespace without task ids."""
    return "|".join(part.split(":")[0] for part in ns.split("|") if not part.isdigit())


class Shapes:
    """Shapes of one graph by namespace, computed once. Those of graphs built per run live as long as the run."""

    def __init__(self) -> None:
        self.by_ns: dict[str, tuple[str, bytes]] = {}
        self.nested: dict[int, set[str]] = {}  # by graph: its nodes that have a subgraph
        self.graphs: dict[str, Any] = {}


class Told:
    """Digests whose shape the server has from this connection."""

    digests: set[str] = set()


class Describer:
    def __init__(self, graph, shapes: Shapes, serde) -> None:
        self.graph = graph
        self.shapes = shapes
        self.serde = serde
        self._failed = False

    def _at(self, ns: str):
        """The graph of a namespace; the root for those that no node declares, as LangGraph reads them."""
        if not ns:
            return self.graph
        name = recast(ns)
        found = self.shapes.graphs.get(name)
        if found is None:
            found = next((g for _, g in self.graph.get_subgraphs(namespace=name, recurse=True)), self)
            self.shapes.graphs[name] = found
        return self.graph if found is self else found

    def told(self, digest: str) -> None:
        Told.digests.add(digest)

    async def describe(
        self, config: RunnableConfig, checkpoint: Mapping, metadata: Mapping, ns: str
    ) -> tuple[bytes | None, str, bytes | None]:
        """(tasks, digest of the shape, the shape if the server lacks it). Never fails: None says that nobody described it."""
        try:
            graph = self._at(ns)
            digest, shape = self.shape(graph, ns)
            tasks = await self._tasks(graph, config, checkpoint, metadata, ns)
        except Exception as exc:
            if not self._failed:
                self._failed = True
                log.debug("cannot describe a checkpoint of %r: %r", ns, exc)
            return None, "", None
        return tasks, digest, None if digest in Told.digests else shape

    async def _tasks(self, graph, config: RunnableConfig, checkpoint: Mapping, metadata: Mapping, ns: str) -> bytes:
        conf = config["configurable"]
        at = {"thread_id": conf["thread_id"], "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}
        one = _One(CheckpointTuple({"configurable": at}, copy_checkpoint(checkpoint), metadata, None, []))
        if prepare_next_tasks is not None and type(graph).aget_state is Pregel.aget_state:
            try:
                return await self._next(graph, one)
            except Exception as exc:
                log.debug("asking for the state instead: %r", exc)
        state = await graph.aget_state({"configurable": {**conf, **at, "__pregel_checkpointer": one}})
        return tasks_json(state.tasks)

    async def _next(self, graph, one: _One) -> bytes:
        """The part of aget_state that is needed: which tasks are next, not what they would be called with."""
        known = one._known
        channels, managed = await achannels_from_checkpoint(graph.channels, known.checkpoint, saver=one, config=known.config)
        step = known.metadata.get("step", -1) + 1
        tasks = prepare_next_tasks(
            known.checkpoint, [], graph.nodes, channels, managed, known.config, step, step + 2, for_execution=False,
        ).values()
        nested = self.shapes.nested.get(id(graph.nodes))
        if nested is None:
            nested = self.shapes.nested[id(graph.nodes)] = {name for name, _ in graph.get_subgraphs()}
        return orjson.dumps([{"id": t.id, "name": t.name, "path": t.path, "subgraph": t.name in nested} for t in tasks])

    def shape(self, graph, ns: str) -> tuple[str, bytes]:
        name = recast(ns) if graph is not self.graph else ""
        known = self.shapes.by_ns.get(name)
        if known is None:
            known = self.shapes.by_ns[name] = shape_of(graph, self.serde)
        return known


def tasks_json(tasks) -> bytes:
    return orjson.dumps([{"id": t.id, "name": t.name, "path": t.path, "subgraph": t.state is not None} for t in tasks])


def shape_of(graph, serde) -> tuple[str, bytes]:
    channels = {}
    for name, channel in graph.channels.items():
        if not isinstance(channel, BaseChannel):
            continue
        empty = None
        try:
            value = channel.from_checkpoint(MISSING).get()
            kind, data = serde.dumps_typed(value)
            empty = {"type": kind, "data": base64.b64encode(data).decode()}
        except Exception:
            pass  # nothing is shown for it
        channels[name] = {"kind": type(channel).__name__, "empty": empty}
    out = graph.stream_channels_asis
    shape = orjson.dumps({
        "out": out if isinstance(out, str) else list(out),
        "channels": channels,
        "stateful": [n for n, node in graph.nodes.items() if node.subgraphs and getattr(node.subgraphs[0], "checkpointer", None) is True],
    })
    return hashlib.sha256(shape).hexdigest()[:32], shape
