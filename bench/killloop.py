"""Kills a server and its workers at random moments under load, and checks that nothing acknowledged is lost.

    bench/killloop [--seconds 600] [--clients 16] [--seed N]

Clients start runs with every multitask strategy on threads of their own, cancel some, follow some and rejoin them with Last-Event-ID
whenever their stream breaks. Meanwhile the server is killed (SIGKILL) every few seconds and started again, and single workers more often.
Then all must come to rest, and what the API and the tables say is held against what was acknowledged:

- every run that was acknowledged is there and has ended, unless a rollback was asked for that takes it along;
- its messages are in the state and in the transcript once, in order; all of them if it succeeded, none if it was rolled back;
- events of a thread are numbered 1, 2, 3…, and no message is recorded twice;
- no thread is busy, no run pending, nothing dangles in the tables, and SQLite finds the file whole;
- a subscriber saw each kept record once, in order, and missed none that a later replay shows; the last values of a run that
  succeeded are those of its end.

Prints one line with runs, kills and losses; exit code 1 when anything was lost, doubled or stuck.
"""
from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from langgraph_sdk import get_client

from soak import Check, Load

HERE = Path(__file__).resolve().parent


class Server:
    """The program under test, on one data folder, through all its lives."""

    def __init__(self, binary: str, data: Path, log: Path, workers: int) -> None:
        self.binary, self.data, self.log, self.workers = binary, data, log, workers
        self.process: subprocess.Popen | None = None
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--config", str(HERE / "graphs" / "killloop.json"), "--port", str(self.port), "--data", str(self.data),
                 "--python", sys.executable, "--workers", str(self.workers), "--log-level", "warning", "--grace", "10s"],
                stdout=log, stderr=log,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def children(self) -> list[int]:
        pid = self.process.pid
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            return [int(c) for t in tasks for c in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
        except OSError:
            return []


async def killer(server: Server, until: float, every: float, rng: random.Random, kills: collections.Counter) -> None:
    next_server = time.monotonic() + rng.uniform(1, 3) * every
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(0.1, 1) * every)
        if server.process.poll() is not None:
            kills["deaths of its own"] += 1
            server.start()
        elif time.monotonic() > next_server:
            await asyncio.to_thread(server.kill)
            kills["server"] += 1
            server.start()
            next_server = time.monotonic() + rng.uniform(1, 4) * every
        elif children := server.children():
            try:
                os.kill(rng.choice(children), signal.SIGKILL)
                kills["workers"] += 1
            except ProcessLookupError:
                pass


class KillCheck(Check):
    """What the API and the tables say."""

    async def error(self, thread: str, run) -> None:
        await super().error(thread, run)
        if self.statuses["error: blamed for the death of servers"]:
            self.fail("run blamed for a kill", f"{thread} {run.id}")

    def tables(self, data: Path) -> None:
        db = sqlite3.connect(f"file:{data / 'understudy.db'}?mode=ro", uri=True)
        if (whole := db.execute("PRAGMA quick_check").fetchall()) != [("ok",)]:
            self.fail("database damaged", str(whole[:3]))
        self.rows(lambda sql: db.execute(sql).fetchall())
        db.close()


async def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--every", type=float, default=2.5, help="seconds within which a worker is killed; the server within up to four times that")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--server", default=str(HERE.parent / "bin" / "understudy"))
    p.add_argument("--keep", help="folder for data and log; default a temporary one, kept when something is wrong")
    args = p.parse_args()
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-killloop-"))
    folder.mkdir(exist_ok=True)
    rng = random.Random(args.seed)
    server = Server(args.server, folder / "data", folder / "log", args.workers)
    kills: collections.Counter = collections.Counter()
    began = time.monotonic()
    server.start()
    try:
        load = Load([server.url], random.Random(rng.random()))
        clients = [asyncio.create_task(load.client(i)) for i in range(args.clients)]
        await killer(server, began + args.seconds, args.every, random.Random(rng.random()), kills)
        load.going = False
        check = KillCheck(load)
        done, late = await asyncio.wait(clients, timeout=120)
        for task in done:
            if task.exception() is not None:
                check.fail("a client ended with an error", repr(task.exception()))
        for task in late:
            check.fail("a client waits for ever", "")
            task.cancel()
        await check.rest(120)
        client = get_client(url=server.url)
        for thread, runs in load.threads.items():
            await check.thread(client, thread, runs)
        for text in load.unexpected:
            check.fail("unexpected answer", text)
        await load.http.aclose()
        if code := await asyncio.to_thread(server.stop):
            check.fail("the server did not stop in order", f"exit code {code}")
        check.tables(folder / "data")
    finally:
        if server.process.poll() is None:
            server.kill()
    log = (folder / "log").read_text(errors="replace")
    if "panic" in log:
        check.fail("panic in the log", log[log.index("panic"):][:500])
    every = [r for runs in load.threads.values() for r in runs]
    followed = [r for r in every if r.followed and r.id]
    print(json.dumps({
        "seconds": round(time.monotonic() - began), "seed": args.seed, "threads": len(load.threads), "runs": len(every), "acknowledged": sum(r.id is not None for r in every),
        "refused": load.refused, "ended": dict(check.statuses), "followed": len(followed), "rejoins": sum(r.joins - 1 for r in followed),
        "kills": dict(kills), "wrong": dict(check.wrong),
    }))
    for kind, text in check.first.items():
        print(f"{kind}: {text}", file=sys.stderr)
    if check.wrong:
        print(f"data and log are in {folder}", file=sys.stderr)
        return 1
    if not args.keep:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
