"""Warns of keys that a state does not have, and that are probably misspelled: LangGraph leaves them out without a word.

A node may return more than the state has, such as the whole result of another graph. So only a key that resembles one of the state is reported, or keys of which
the state has none.
"""
from __future__ import annotations

import difflib
import logging
from typing import Any

from langgraph.pregel.protocol import PregelProtocol
from langgraph.types import Command

log = logging.getLogger(__name__)

# How many keys are named, and how many warnings a process remembers, so that each is logged once.
SHOWN, REMEMBERED = 20, 1_000
_ROOT = "__root__"
_logged: set[tuple[str, str, str]] = set()


class Unknown:
    """Looks at what the nodes of a StateGraph return, and at the input of a run. Subgraphs have states of their own."""

    def __init__(self, name: str, graph: Any) -> None:
        self._name = name
        builder = getattr(graph, "builder", None)
        self._inside = {name for name, node in getattr(graph, "nodes", {}).items() if isinstance(getattr(node, "bound", None), PregelProtocol)}
        self._state = _keys(builder, "channels") | _keys(builder, "managed")
        schemas, schema = getattr(builder, "schemas", None), getattr(builder, "input_schema", None)
        self._input = frozenset(schemas.get(schema, ())) if isinstance(schemas, dict) and isinstance(schema, type) else frozenset()

    def of_node(self, node: str, output: Any) -> None:
        if node not in self._inside:
            self._check(node, _updated(output), self._state)

    def of_input(self, given: Any) -> None:
        if isinstance(given, dict):
            self._check("", list(given), self._input)

    def _check(self, node: str, given: list[Any], keys: frozenset[str]) -> None:
        if not keys or _ROOT in keys:
            return
        none = keys.isdisjoint(given)
        for key in given:
            what = (self._name, node, str(key)[:100])
            if key in keys or what in _logged or len(_logged) >= REMEMBERED:
                continue
            near = difflib.get_close_matches(what[2], keys - set(given), n=1)
            if near or none:
                _logged.add(what)
                self._warn(node, what[2], near, sorted(keys))

    @staticmethod
    def _warn(node: str, key: str, near: list[str], keys: list[str]) -> None:
        where = f"node {node!r} returned the key {key!r}, which the state" if node else f"the input has the key {key!r}, which the graph's input"
        meant = f"Did you mean {near[0]!r}? " if near else ""
        log.warning("%s does not have; it is ignored. %sKeys: %s%s", where, meant, ", ".join(keys[:SHOWN]), ", …" if len(keys) > SHOWN else "")


def _keys(builder: Any, name: str) -> frozenset[str]:
    keys = getattr(builder, name, None)
    return frozenset(keys) if isinstance(keys, dict) else frozenset()


def _updated(output: Any) -> list[Any]:
    if isinstance(output, Command):
        return [] if output.graph is not None else _updated(output.update)
    if isinstance(output, dict):
        return list(output)
    if isinstance(output, (list, tuple)) and any(isinstance(o, Command) for o in output):
        return [key for o in output for key in _updated(o)]
    return []
