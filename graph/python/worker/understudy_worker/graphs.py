"""The graphs of a langgraph.json: found, imported, and built for each run where they are factories."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

try:
    from langgraph.pregel.protocol import PregelProtocol
except ImportError:
    PregelProtocol = Pregel  # type: ignore[misc,assignment]

from .describe import Shapes
from .loading import Loader

DEFAULT_NAME = "LangGraph"


class Registry:
    def __init__(self, specs: dict[str, str], directory: str) -> None:
        self._specs = specs
        self._loader = Loader(directory)
        self.sources: dict[str, Source] = {}
        self.problems: dict[str, BaseException] = {}

    def load(self, skip: dict[str, str], begin: Callable[[str], None], end: Callable[[str, BaseException | None], None]) -> None:
        """Imports all but those to skip, given with the reason. Calls `begin` before each import and `end` after it."""
        for graph_id, spec in self._specs.items():
            if graph_id in skip:
                self.problems[graph_id] = ImportError(skip[graph_id])
                continue
            begin(graph_id)
            try:
                self.sources[graph_id] = Source(graph_id, self._find(spec))
            except BaseException as exc:  # KeyboardInterrupt and their like too: the other graphs are to be served
                self.problems[graph_id] = exc
            end(graph_id, self.problems.get(graph_id))

    def _find(self, spec: str) -> Any:
        path, _, name = spec.rpartition(":")
        if not path or not name:
            raise ValueError(f"Graph path {spec!r} is not of the form path/to/file.py:name or module:name")
        module = self._loader.module(path)
        try:
            return getattr(module, name)
        except AttributeError:
            near = [n for n, v in vars(module).items() if isinstance(v, (PregelProtocol, StateGraph))]
            raise ValueError(f"Could not find graph {name!r} in {path!r}. Graphs there: {near}") from None


class Source:
    """One entry of `graphs`."""

    def __init__(self, graph_id: str, value: Any) -> None:
        self.id = graph_id
        self.static = None
        self.shapes = Shapes()
        self._factory = None
        if _is_graph(value):
            self.static = _named(_compiled(value), graph_id)
        elif callable(value):
            self._factory = value
            self._wants = _wants(value)
        else:
            raise TypeError(f"{type(value).__name__} is neither a graph nor a function that makes one: name one that is, such as the result of compile()")

    @contextlib.asynccontextmanager
    async def build(self, config: dict, context: Any, store: Any, user: Any, access: str) -> AsyncIterator[tuple[Any, Shapes]]:
        """A graph for one run: the static one, or what the factory makes of the configuration."""
        if self.static is not None:
            yield self.static, self.shapes
            return
        kwargs = {}
        for name, wanted in self._wants.items():
            kwargs[name] = config if wanted == "config" else _runtime(access, context, store, user)
        async with contextlib.AsyncExitStack() as stack:
            made = self._factory(**kwargs)
            for _ in range(4):
                if _is_graph(made):
                    break
                if inspect.isawaitable(made):
                    made = await made
                elif hasattr(made, "__aenter__"):
                    made = await stack.enter_async_context(made)
                elif hasattr(made, "__enter__"):
                    made = stack.enter_context(made)
                elif callable(made):
                    made = made()
            if not _is_graph(made):
                raise TypeError(f"Graph factory {self.id!r} made a {type(made).__name__}, not a graph")
            yield _named(_compiled(made), self.id), Shapes()


def _is_graph(value: Any) -> bool:
    return isinstance(value, (Pregel, StateGraph)) or (not isinstance(value, type) and isinstance(value, PregelProtocol))


def _compiled(value: Any) -> Any:
    return value.compile() if isinstance(value, StateGraph) else value


def _named(graph: Any, graph_id: str) -> Any:
    if getattr(graph, "name", None) == DEFAULT_NAME:
        graph = copy.copy(graph)
        graph.name = graph_id
    return graph


def unused(graph: Any) -> str:
    """What the graph was compiled with and attach replaces, "" for nothing: the server keeps conversations and items."""
    parts = []
    if getattr(graph, "checkpointer", None) not in (None, True, False):
        parts.append(f"checkpointer ({type(graph.checkpointer).__name__})")
    if getattr(graph, "store", None) is not None:
        parts.append(f"store ({type(graph.store).__name__})")
    return " and ".join(parts)


def attach(graph: Any, saver: Any, store: Any) -> Any:
    """A copy of the graph with our checkpointer and store. Shallow: what is compiled is shared."""
    graph = copy.copy(graph)
    graph.checkpointer = saver
    graph.store = store
    return graph


def _wants(factory: Any) -> dict[str, str]:
    """Which parameters of a factory get the configuration, and which the runtime."""
    try:
        params = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    try:
        hints = get_type_hints(factory)
    except Exception:
        hints = {}
    wants, open_ = {}, []
    for name, param in params.items():
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        text = str(hints.get(name, param.annotation))
        if "ServerRuntime" in text or "_ExecutionRuntime" in text or name == "runtime":
            wants[name] = "runtime"
        elif "RunnableConfig" in text or name == "config":
            wants[name] = "config"
        elif param.default is param.empty:
            open_.append(name)
    for name in open_:
        if "config" in wants.values():
            raise TypeError(f"Graph factory parameter {name!r} is neither a RunnableConfig nor a ServerRuntime")
        wants[name] = "config"
    return wants


def _runtime(access: str, context: Any, store: Any, user: Any) -> Any:
    from langgraph_sdk import runtime

    if access == "threads.create_run":
        return runtime._ExecutionRuntime(access_context=access, user=user, store=store, context=context)
    return runtime._ReadRuntime(access_context=access, user=user, store=store)


def context_keys(graph: Any) -> set[str] | None:
    """The names that the graph's context schema knows; None when it takes any."""
    schema = getattr(graph, "context_schema", None)
    if schema is None:
        return None
    if dataclasses.is_dataclass(schema):
        return {f.name for f in dataclasses.fields(schema)}
    fields = getattr(schema, "model_fields", None)
    if fields is not None:
        if getattr(schema, "model_config", {}).get("extra") == "allow":
            return None
        return set(fields) | {f.alias for f in fields.values() if f.alias}
    try:
        return set(get_type_hints(schema)) or None
    except Exception:
        return set(getattr(schema, "__annotations__", ())) or None
