"""A LangGraph Server with custom auth, and proxies in front of it that may be killed."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("UNDERSTUDY_BINARY", str(HERE.parent.parent / "bin" / "understudy"))
START_SECONDS = 90


def environment(**more):
    dropped = ("UNDERSTUDY_", "LANGGRAPH_", "LANGSMITH_", "LANGCHAIN_", "BG_JOB_")
    return {k: v for k, v in os.environ.items() if not k.startswith(dropped)} | more


@pytest.fixture(scope="session")
def upstream(tmp_path_factory):
    """The address of the graphs of the suite, behind auth.py."""
    folder = tmp_path_factory.mktemp("upstream")
    graphs = folder / "graphs"
    shutil.copytree(HERE.parent / "graphs", graphs, ignore=shutil.ignore_patterns("__pycache__", ".langgraph_api"))
    shutil.copy(HERE / "auth.py", graphs)
    config = json.loads((graphs / "langgraph.json").read_text())
    config["auth"] = {"path": "./auth.py:auth", "disable_studio_auth": True}
    (graphs / "langgraph.json").write_text(json.dumps(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "upstream.log"
    command = [pathlib.Path(sys.executable).parent / "langgraph", "dev", "--port", str(port), "--no-browser", "--no-reload", "--n-jobs-per-worker", "10"]
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=graphs, stdout=out, stderr=subprocess.STDOUT, env=environment(PYTHONPATH=".", LANGSMITH_TRACING="false"))
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url + "/ok").status_code == 200:
                    break
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


class Proxy:
    """`understudy proxy` on a data folder; it can be killed, and started again."""

    def __init__(self, upstream, data, *more):
        self.upstream, self.data, self.more, self.process = upstream, data, more, None

    def start(self):
        with (self.data.parent / f"{self.data.name}.log").open("a") as log:
            self.process = subprocess.Popen([BINARY, "proxy", "--upstream", self.upstream, "--port", "0", "--data", self.data, "--log-level", "debug", *self.more],
                                            stdout=subprocess.PIPE, stderr=log, text=True, env=environment())
        line = self.process.stdout.readline()
        match = re.fullmatch(r"understudy listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert match, f"the proxy did not start: {line!r}\n{self.log()}"
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.url = match[1]
        return self

    def log(self):
        return (self.data.parent / f"{self.data.name}.log").read_text()

    def kill(self):
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(30) == 0, self.log()[-4000:]

    def caller(self, name):
        return caller(self.url, name)


def caller(url, name):
    """A client with the credentials of somebody, or with none."""
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {name}"} if name else {}, timeout=60)


@pytest.fixture
def proxy(upstream, tmp_path):
    """A function that starts a proxy with a data folder of its own."""
    started = []

    def start(data="data", *more):
        p = Proxy(upstream, tmp_path / data, *more)
        started.append(p)
        return p.start()
    yield start
    for p in started:
        p.stop()


@pytest.fixture
def direct(upstream):
    """A function that gives a client of the upstream itself."""
    return lambda name="alice": caller(upstream, name)
