"""Event streaming of remote graphs: a server whose graphs are those of another one. The tests of event streaming run against it."""
from __future__ import annotations

import json
import os
import subprocess
import sys

from helpers import BASE_URL
from moving import GRAPHS, HERE, Folder, understudy

# What goes through package remote: modes, checkpoints, tools, interrupts and subgraphs.
TESTS = "tool or checkpoint or interrupt or subgraph or share_a_thread or failed or parallel or respond or multitask or recorded"


def test_event_streaming_of_remote_graphs(tmp_path):
    here = json.loads((GRAPHS / "langgraph.json").read_text())
    config = tmp_path / "langgraph.json"
    config.write_text(json.dumps(here | {"graphs": {name: {"url": BASE_URL, "graph_id": name} for name in here["graphs"]}}))
    with understudy(Folder(tmp_path / "data"), config) as url:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", TESTS, "test_event_streaming.py", "test_protocol.py", "test_websocket.py"],
            cwd=HERE, env=os.environ | {"BASE_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
