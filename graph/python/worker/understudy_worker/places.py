"""Where the functions of nodes are, so that the server can name the node of a stack that it gets when nothing can run here."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

# Nodes of a graph that are reported.
MOST = 500


def of(graph: Any) -> list[list]:
    """[node, file, function, its first line] for the nodes of a graph and of its subgraphs."""
    out: list[list] = []
    try:
        graphs = [graph, *(sub for _, sub in graph.get_subgraphs(recurse=True))]
        for each in graphs:
            for name, node in each.nodes.items():
                if name != "__start__":
                    out += [[name, code.co_filename, code.co_name, code.co_firstlineno] for code in _codes(getattr(node, "bound", node))]
    except Exception:
        pass  # of a remote graph, or one whose parts are elsewhere: a stack is reported without a node
    return out[:MOST]


def _codes(runnable: Any) -> Iterator[Any]:
    for step in getattr(runnable, "steps", None) or [runnable]:
        for key in ("func", "afunc"):
            function = getattr(step, key, None)
            while isinstance(function, functools.partial):
                function = function.func
            function = inspect.unwrap(function) if callable(function) else None
            function = getattr(function, "__func__", function)
            code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)
            if inspect.iscode(code):
                yield code
