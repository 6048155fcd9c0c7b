"""What test_moving.py needs: servers of its own, and the graphs with Python's savers."""
from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import psycopg

from databases import START_SECONDS, free_port

HERE = pathlib.Path(__file__).resolve().parent
GRAPHS = HERE / "graphs"
BINARY = os.environ.get("UNDERSTUDY_BINARY") or str(HERE.parent / "bin" / "understudy")


def clean_environment(**more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "LANGGRAPH_", "LANGSMITH_", "LANGCHAIN_", "BG_JOB_"))}
    return keep | more


@dataclasses.dataclass
class Folder:
    """A data folder: where a server keeps everything."""
    path: pathlib.Path

    @property
    def flags(self) -> list:
        return ["--data", self.path]

    @property
    def source(self) -> str:
        """What an import is told to read it."""
        return str(self.path)

    @property
    def log(self) -> pathlib.Path:
        return self.path.with_suffix(".log")

    def written(self) -> int:
        """How many bytes it has."""
        size = 0
        for f in self.path.glob("understudy.db*"):
            with contextlib.suppress(FileNotFoundError):  # SQLite removes its journal when the database is made
                size += f.stat().st_size
        return size


@dataclasses.dataclass
class Database:
    """A Postgres database in place of a folder. path is for logs and what is beside it."""
    url: str
    path: pathlib.Path

    @property
    def flags(self) -> list:
        return ["--database-url", self.url, "--data", self.path]

    @property
    def source(self) -> str:
        return self.url

    @property
    def log(self) -> pathlib.Path:
        return self.path.with_suffix(".log")

    def written(self) -> int:
        with psycopg.connect(self.url) as conn:
            return conn.execute("SELECT pg_database_size(current_database())").fetchone()[0]

    def schemas(self) -> list[str]:
        with psycopg.connect(self.url) as conn:
            return [name for (name,) in conn.execute("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'upstream%'")]


@contextlib.contextmanager
def understudy(home, config=GRAPHS / "langgraph.json"):
    """Serves the graphs from a data folder or database and gives the address."""
    command = [BINARY, "dev", "--config", config, "--port", "0", *home.flags, "--python", sys.executable, "--workers", "1"]
    with open(home.log, "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=clean_environment())
    try:
        line = process.stdout.readline()
        assert line.startswith("understudy listening on "), f"understudy did not start: {line!r}"
        threading.Thread(target=process.stdout.read, daemon=True).start()
        url = line.split()[-1]
        wait_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextlib.contextmanager
def proxy(upstream, home):
    """Stands in front of a server and gives the address."""
    with open(home.log, "ab") as log:
        process = subprocess.Popen([BINARY, "proxy", "--upstream", upstream, *home.flags, "--port", "0", "--config", GRAPHS / "langgraph.json"],
                                   stdout=subprocess.PIPE, stderr=log, text=True,
                                   env=clean_environment())
    try:
        line = process.stdout.readline()
        assert line.startswith("understudy listening on "), f"the proxy did not start: {line!r}"
        threading.Thread(target=process.stdout.read, daemon=True).start()
        url = line.split()[-1]
        wait_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextlib.contextmanager
def langgraph_server(folder):
    """The real server. It keeps files in its folder, so it gets a copy of the graphs."""
    graphs = shutil.copytree(GRAPHS, pathlib.Path(folder) / "graphs", ignore=shutil.ignore_patterns("__pycache__", ".langgraph_api"))
    url = f"http://127.0.0.1:{free_port()}"
    command = [pathlib.Path(sys.executable).parent / "langgraph", "dev", "--port", url.rsplit(":", 1)[1], "--no-browser", "--no-reload"]
    with open(pathlib.Path(folder) / "server.log", "ab") as log:
        process = subprocess.Popen(command, cwd=graphs, stdout=log, stderr=log, env=clean_environment(PYTHONPATH=".", LANGSMITH_TRACING="false"))
    try:
        wait_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_ready(process, url):
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(url + "/ok", timeout=5).read()
            return
        assert process.poll() is None and time.monotonic() < deadline, f"{url} did not get ready"
        time.sleep(0.1)


def move(*args, ok=True) -> str:
    """Runs import or export and gives what it printed."""
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, env=clean_environment(), cwd=tempfile.gettempdir(), timeout=300)
    if ok:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verified: everything that was read is there and equal" in done.stdout, done.stdout
    else:
        assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def graph(name: str):
    """A graph, as the servers load it."""
    if str(GRAPHS) not in sys.path:
        sys.path.insert(0, str(GRAPHS))
    import agents
    import graphs

    return getattr(agents if hasattr(agents, name) else graphs, name)


@contextlib.contextmanager
def savers(kind: str, where: str):
    """A saver and a store of Python on a database."""
    if kind == "postgres":
        from langgraph.checkpoint.postgres import PostgresSaver
        from langgraph.store.postgres import PostgresStore

        with PostgresSaver.from_conn_string(where) as saver, PostgresStore.from_conn_string(where) as store:
            saver.setup()
            store.setup()
            yield saver, store
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.store.sqlite import SqliteStore

        with SqliteSaver.from_conn_string(where) as saver, SqliteStore.from_conn_string(where) as store:
            store.setup()
            yield saver, store


def with_saver(name: str, saver):
    return graph(name).copy(update={"checkpointer": saver})
