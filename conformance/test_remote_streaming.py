"""Event streaming of remote graphs: a server whose graphs are those of another one. The tests of event streaming run against it."""
from __future__ import annotations

import os
import subprocess
import sys

from helpers import BASE_URL
from moving import HERE, Folder, understudy
from streams import REMOTE, REMOTE_TESTS, remote_graphs


def test_event_streaming_of_remote_graphs(tmp_path):
    with understudy(Folder(tmp_path / "data"), remote_graphs(BASE_URL, tmp_path / "langgraph.json")) as url:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", REMOTE_TESTS, *REMOTE],
            cwd=HERE, env=os.environ | {"BASE_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
