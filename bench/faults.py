"""Faults that killloop.py and chaos.py cause around a server, and the parts that they take: its process, its memory, its interpreter, its clock, its clients.

Nothing here needs anything of the server: it is the program that is released, but for the clock, which `shifted` puts into Go's own time package.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Memory:
    """A limit on the memory of a server, and a watch on what it takes.

    A control group would be nearest to a container, but those of a machine belong to whoever runs it, and a session or container seldom may make its own.
    RLIMIT_DATA needs no rights and does the same harm: beyond it the kernel refuses the server private memory, of Go and of SQLite, and it dies. Go gets
    GOMEMLIMIT as it would by a container. Python workers have the same limit, each for itself.
    """

    def __init__(self, mib: int) -> None:
        self.mib, self.peak = mib, 0

    def __str__(self) -> str:
        return f"RLIMIT_DATA {self.mib} MiB, GOMEMLIMIT {self.soft()} MiB" if self.mib else "none"

    def soft(self) -> int:
        return int(self.mib * 0.6)  # Go reserves in pieces of 64 MiB, and SQLite has pages of its own

    def environment(self) -> dict[str, str]:
        return {"GOMEMLIMIT": f"{self.soft()}MiB"} if self.mib else {}

    def limit(self) -> None:
        """Called in the process before it becomes the server."""
        if self.mib:
            resource.setrlimit(resource.RLIMIT_DATA, (self.mib * MIB, self.mib * MIB))

    def look(self, pid: int) -> None:
        with contextlib.suppress(OSError, StopIteration):
            line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(line.split()[1]) // 1024)


class Interpreter:
    """A Python for the workers of a server that can be broken: then nothing starts."""

    def __init__(self, folder: Path, clock: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.flag = folder / "python", folder / "broken"
        shift = f'export SHIFT_CLOCK_FILE="{clock}" PYTHONPATH="{HERE / "clock"}"\n' if clock else ""
        self.path.write_text(f'#!/bin/sh\nif [ -e "{self.flag}" ]; then echo "broken by the test" >&2; exit 1; fi\n{shift}exec "{sys.executable}" "$@"\n')
        self.path.chmod(0o755)

    def fail(self) -> None:
        self.flag.touch()

    def work(self) -> None:
        self.flag.unlink(missing_ok=True)


def shifted(program: str, folder: Path) -> str:
    """Builds the program with a clock that a file sets, and gives its path: time.Now of Go's own library adds what SHIFT_CLOCK_FILE says.

    Production code has no switch for it, and needs none: go build replaces the file of the library by -overlay. All that is linked in sees the wrong
    time, libraries too. The first build takes minutes, since everything stands on that package; afterwards it is in Go's cache.
    """
    go = shutil.which("go") or "/usr/local/go/bin/go"
    root = Path(subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()) / "src" / "time"
    source = (root / "time.go").read_text()
    ask = "sec, nsec, mono := runtimeNow()\n"
    if source.count(ask) == 0:
        raise RuntimeError("time.Now of this version of Go is not as bench/faults.py knows it")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "time.go").write_text(source.replace(ask, ask + "\tsec += shift.Load()\n"))
    (folder / "overlay.json").write_text(json.dumps({"Replace": {
        str(root / "time.go"): str(folder / "time.go"), str(root / "shift.go"): str(HERE / "clock" / "shift.go.txt"),
    }}))
    subprocess.run([go, "build", "-trimpath", "-overlay", str(folder / "overlay.json"), "-o", program, "./cmd/understudy"], check=True, cwd=HERE.parent, env={**os.environ, "CGO_ENABLED": "0"})
    return program


class Program:
    """A server, through all its lives."""

    def __init__(self, command: list[str], port: int, log: Path, memory: Memory, interpreter: Interpreter, env: dict[str, str] | None = None) -> None:
        self.command, self.port, self.log, self.memory, self.interpreter = command, port, log, memory, interpreter
        self.url = f"http://127.0.0.1:{port}"
        self.env = {**os.environ, **memory.environment(), **(env or {})}
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.log.parent, env=self.env, preexec_fn=self.memory.limit)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.alive():
            self.process.kill()
            self.process.wait()

    def stop(self, within: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)

    def workers(self) -> list[int]:
        try:
            tasks = os.listdir(f"/proc/{self.process.pid}/task")
            return [int(c) for t in tasks for c in Path(f"/proc/{self.process.pid}/task/{t}/children").read_text().split()]
        except OSError:
            return []

    def kill_workers(self) -> int:
        killed = 0
        for pid in self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    async def without_python(self, seconds: float) -> None:
        """For some seconds no worker starts, and those that there are die."""
        self.interpreter.fail()
        try:
            self.kill_workers()
            await asyncio.sleep(seconds)
        finally:
            self.interpreter.work()


class Receivers:
    """What webhooks are sent to: one host that takes them, and one that accepts connections and never answers."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}  # tag of a run: when
        self.hung = 0
        self.servers: list[asyncio.Server] = []
        self.good = self.hanging = ""

    async def start(self) -> None:
        for handler, name in ((self.take, "good"), (self.hang, "hanging")):
            server = await asyncio.start_server(handler, "127.0.0.1", 0)
            self.servers.append(server)
            setattr(self, name, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
            await reader.readexactly(length)
            self.took.setdefault(head.split(b" ")[1].decode().lstrip("/"), time.monotonic())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    async def hang(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hung += 1
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while await reader.read(1 << 16):
                pass
        writer.close()

    def stop(self) -> None:
        for server in self.servers:
            server.close()


async def read_slowly(url: str, path: str, seconds: float, rate: int) -> None:
    """A client of a stream with a small buffer, that reads some bytes a second, or none at all."""
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError), socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setblocking(False)
        loop = asyncio.get_running_loop()
        await asyncio.wait_for(loop.sock_connect(s, (host, int(port))), 2)
        await loop.sock_sendall(s, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nLast-Event-ID: -1\r\n\r\n".encode())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if rate and not await asyncio.wait_for(loop.sock_recv(s, rate), max(0.1, end - time.monotonic())):
                return
            await asyncio.sleep(1)


def deal(faults: dict[str, int], rng: random.Random, seconds: float, every: float) -> list[tuple[float, str, list[float]]]:
    """A schedule: when, what, and numbers that say to whom and for how long. Faults are dealt from a shuffled deck that has each as often as faults says,
    so that no run of some length leaves one out. After `calm` there is nothing for a while."""
    plan, deck, at = [], [], every / 2
    while at < seconds:
        if not deck:
            deck = [kind for kind, n in faults.items() for _ in range(n)]
            rng.shuffle(deck)
        kind, numbers = deck.pop(), [rng.random() for _ in range(3)]
        if kind == "calm":
            at += min(3 * every, 12)
            continue
        plan.append((at, kind, numbers))
        at += every * (0.3 + 1.4 * rng.random())
    return plan
