"""Drawings and schemas of graphs."""
from __future__ import annotations

import functools
import inspect
import logging
import os
from typing import Any

from pydantic import Field, create_model

log = logging.getLogger(__name__)


async def describe(graph: Any, config: dict, f: dict[str, Any]) -> Any:
    kind = f["kind"]
    if kind == "graph":
        xray = f["xray"]
        drawn = await graph.aget_graph(config, xray=True if xray < 0 else xray or False)
        return _plain(drawn.to_json())
    if kind == "schemas":
        return schemas(graph, f["graph"])
    if kind == "subgraphs":
        out = {}
        async for name, sub in graph.aget_subgraphs(namespace=f["namespace"] or None, recurse=f["recurse"]):
            out[name] = schemas(sub, f["graph"])
        return out
    if kind == "nodes":
        return {"nodes": list(_places(graph))}
    raise ValueError(f"unknown description {kind!r}")


def _places(graph: Any, prefix: str = "") -> Any:
    """Where the functions of the nodes are. A node that is a subgraph has those of its nodes, under the names that drawings have."""
    subgraphs = dict(graph.get_subgraphs())
    for name, node in graph.nodes.items():
        if name == "__start__":
            continue
        if name in subgraphs and hasattr(subgraphs[name], "nodes"):
            yield from _places(subgraphs[name], f"{prefix}{name}:")
        else:
            yield {"id": prefix + name, **_place(_function(node.bound))}


def _function(bound: Any) -> Any:
    """The function behind a runnable; of a sequence that of its first step; None when there is none."""
    for step in getattr(bound, "steps", None) or [bound]:
        for name in ("func", "afunc"):
            function = getattr(step, name, None)
            if function is not None:
                return function
    return None


def _place(function: Any) -> dict:
    place = {"function": "", "file": "", "line": 0}
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)
    if code is None:
        return place
    place["function"] = f"{getattr(function, '__module__', None) or type(function).__module__}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"
    file, here = os.path.realpath(code.co_filename), os.path.realpath(os.getcwd())
    if file.startswith(here + os.sep) and "site-packages" not in file:
        place["file"] = os.path.relpath(file, here).replace(os.sep, "/")
        place["line"] = code.co_firstlineno
    return place


def _plain(drawn: dict) -> dict:
    for node in drawn.get("nodes", ()):
        data = node.get("data")
        if isinstance(data, dict):
            data.pop("id", None)
    return drawn


def schemas(graph: Any, name: str) -> dict[str, Any]:
    context = _try(lambda: graph.get_context_jsonschema())
    return {
        "input_schema": _try(lambda: graph.get_input_jsonschema(), lambda exc: _warn(name, exc)),
        "output_schema": _try(lambda: graph.get_output_jsonschema()),
        "state_schema": _try(lambda: _state(graph)),
        "config_schema": _try(lambda: _config(graph, context)),
        "context_schema": context,
    }


def _try(make, failed=lambda exc: None) -> Any:
    try:
        return make()
    except Exception as exc:
        failed(exc)
        return None


_warned: set[str] = set()


def _warn(name: str, exc: Exception) -> None:
    """Once for each graph, or for all that have one cause: clients get null, and guess what the graph takes."""
    if name in _warned:
        return
    _warned.add(name)
    fix = ""
    if getattr(exc, "code", "") == "typed-dict-version":
        if "" in _warned:  # no name of a graph
            return
        _warned.add("")
        fix = "; other graphs whose state is such a TypedDict have none either: write `from typing_extensions import TypedDict` in place of typing's, or use Python 3.12"
    log.warning("graph %s has no input schema: %s%s", name, (str(exc).splitlines() or [type(exc).__name__])[0].rstrip("."), fix)


def _described(kind: Any) -> Any:
    """A type of which pydantic makes no schema has none in that of the state, which keeps its other keys."""
    try:
        create_model("Field", value=(kind, None)).model_json_schema()
    except Exception:
        return Any
    return kind


def _state(graph: Any) -> dict:
    try:
        return _model(graph, lambda kind: kind)
    except Exception:
        return _model(graph, _described)


def _model(graph: Any, described) -> dict:
    fields = {}
    for i, name in enumerate(graph.stream_channels_list):
        kind = described(getattr(graph.channels[name], "UpdateType", Any))
        if name.startswith("_"):  # which pydantic takes for a private attribute
            title = name.title().replace("_", " ").lstrip()
            fields[f"field{i}"] = (kind, Field(None, alias=name, title=title))
        else:
            fields[name] = (kind, None)
    return create_model(graph.get_name("State"), **fields).model_json_schema()


def _config(graph: Any, context: Any) -> dict:
    # The configurable of a graph is its context, under the older name.
    return context or {}
