"""Drawings and schemas of graphs."""
from __future__ import annotations

from typing import Any

from pydantic import Field, create_model


async def describe(graph: Any, config: dict, f: dict[str, Any]) -> Any:
    kind = f["kind"]
    if kind == "graph":
        xray = f["xray"]
        drawn = await graph.aget_graph(config, xray=True if xray < 0 else xray or False)
        return _plain(drawn.to_json())
    if kind == "schemas":
        return schemas(graph)
    if kind == "subgraphs":
        out = {}
        async for name, sub in graph.aget_subgraphs(namespace=f["namespace"] or None, recurse=f["recurse"]):
            out[name] = schemas(sub)
        return out
    raise ValueError(f"unknown description {kind!r}")


def _plain(drawn: dict) -> dict:
    for node in drawn.get("nodes", ()):
        data = node.get("data")
        if isinstance(data, dict):
            data.pop("id", None)
    return drawn


def schemas(graph: Any) -> dict[str, Any]:
    context = _try(lambda: graph.get_context_jsonschema())
    return {
        "input_schema": _try(lambda: graph.get_input_jsonschema()),
        "output_schema": _try(lambda: graph.get_output_jsonschema()),
        "state_schema": _try(lambda: _state(graph)),
        "config_schema": _try(lambda: _config(graph, context)),
        "context_schema": context,
    }


def _try(make) -> Any:
    try:
        return make()
    except Exception:
        return None


def _state(graph: Any) -> dict:
    fields = {}
    for i, name in enumerate(graph.stream_channels_list):
        kind = getattr(graph.channels[name], "UpdateType", Any)
        if name.startswith("_"):  # which pydantic takes for a private attribute
            title = name.title().replace("_", " ").lstrip()
            fields[f"field{i}"] = (kind, Field(None, alias=name, title=title))
        else:
            fields[name] = (kind, None)
    return create_model(graph.get_name("State"), **fields).model_json_schema()


def _config(graph: Any, context: Any) -> dict:
    # The configurable of a graph is its context, under the older name.
    return context or {}
