"""Which tests show that clients of the newer protocols are served: event streaming, WebSockets, A2A and MCP."""
from __future__ import annotations

import json
import pathlib

GRAPHS = pathlib.Path(__file__).resolve().parent / "graphs"

STREAMS = ["test_event_streaming.py", "test_protocol.py", "test_transformers.py", "test_websocket.py", "test_a2a.py", "test_mcp.py", "test_remote_graph.py",
           "js/event-streaming.test.mjs", "js/commands.test.mjs", "js/mcp.test.mjs"]

# What goes through package remote: modes, checkpoints, tools, interrupts and subgraphs.
REMOTE = ["test_event_streaming.py", "test_protocol.py", "test_websocket.py"]
REMOTE_TESTS = "tool or checkpoint or interrupt or subgraph or share_a_thread or failed or parallel or respond or multitask or recorded"


def remote_graphs(url: str, file: pathlib.Path) -> pathlib.Path:
    """Writes a langgraph.json whose graphs are those of the server at url."""
    here = json.loads((GRAPHS / "langgraph.json").read_text())
    file.write_text(json.dumps(here | {"graphs": {name: {"url": url, "graph_id": name} for name in here["graphs"]}}))
    return file
