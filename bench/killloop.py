"""Kills a server and its workers at random moments under load, and checks that nothing acknowledged is lost.

    bench/killloop [--seconds 600] [--clients 16] [--seed N] [--memory 1024]

Clients start runs with every multitask strategy on threads of their own, cancel some, follow some and rejoin them with Last-Event-ID
whenever their stream breaks; others write, copy and delete what writes.py says, read slowly, and let webhooks hang. The server has a memory limit.
Meanwhile the server is killed (SIGKILL) every few seconds and started again, single workers more often, and for seconds no worker can start.
Then all must come to rest, and what the API and the tables say is held against what was acknowledged:

- every run that was acknowledged is there and has ended, unless a rollback was asked for that takes it along;
- its messages are in the state and in the transcript once, in order; all of them if it succeeded, none if it was rolled back;
- every state update, copy, patch of metadata and item of the store that was acknowledged is there, whole, and what was deleted is gone;
- events of a thread are numbered 1, 2, 3…, and no message is recorded twice;
- no thread is busy, no run pending, nothing dangles in the tables, and SQLite finds the file whole;
- a subscriber saw each kept record once, in order, and missed none that a later replay shows; the last values of a run that
  succeeded are those of its end;
- a small write and a plain read never waited long while the server was up;
- the server never ended by itself.

Prints one line with runs, writes, kills and losses; exit code 1 when anything was lost, doubled, stuck or late.
"""
from __future__ import annotations

import argparse
import asyncio
import collections
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from faults import Interpreter, Memory, Program, Receivers, deal, free_port
from soak import Check, Load
from writes import SHORT, Sizes, Writes, conclude, report, settle

HERE = Path(__file__).resolve().parent

# What happens, and how often next to the others.
FAULTS = {"kill worker": 6, "kill server": 3, "no python": 1, "calm": 2}
FEW = {"kill worker": 3, "kill server": 2, "no python": 1, "calm": 1}  # in a short run


class Killer:
    """Does what the plan says, and starts the server again."""

    def __init__(self, server: Program, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.done: collections.Counter = collections.Counter()
        self.deaths: list[str] = []
        self.started = 0.0

    def start(self) -> None:
        self.server.start()
        self.started = time.monotonic()

    def steady(self) -> list[str]:
        return [self.server.url] if self.server.alive() and time.monotonic() > self.started + 3 else []

    async def carry_out(self, plan: list[tuple[float, str, list[float]]], seconds: float) -> None:
        began = time.monotonic()
        for at, kind, numbers in [*plan, (seconds, "", [])]:
            while (left := began + at - time.monotonic()) > 0:
                self.watch()
                await asyncio.sleep(min(left, 0.25))
            if kind:
                await self.fault(kind, *numbers)
                self.done[kind] += 1

    def watch(self) -> None:
        self.server.memory.look(self.server.process.pid)
        if not self.server.alive():
            self.deaths.append(f"exit code {self.server.process.returncode}: {self.server.log.read_text(errors='replace')[-1500:]}")
            self.start()

    async def fault(self, kind: str, whom: float, how: float, long: float) -> None:
        if kind == "kill server":
            self.watch()
            await asyncio.to_thread(self.server.kill)
            self.start()
        elif kind == "no python":
            await self.server.without_python(2 + 4 * long)
        elif workers := self.server.workers():
            try:
                os.kill(workers[int(whom * len(workers))], signal.SIGKILL)
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

        def ask(sql: str) -> list:
            return db.execute(sql).fetchall()

        if (whole := ask("PRAGMA quick_check")) != [("ok",)]:
            self.fail("database damaged", str(whole[:3]))
        self.rows(ask, [name for name, in ask("SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND c.name = 'thread_id'")])
        db.close()


async def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--clients", type=int, help="default 12, or 6 in a run of less than a minute")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--every", type=float, help="seconds between faults, about; default 3, or 2 in a short run")
    p.add_argument("--memory", type=int, default=1024, help="MiB that the server may have; 0 for any")
    p.add_argument("--patience", type=float, help="seconds that a small write or a plain read may wait; default 5, or 10 in a short run, next to which other tests may run")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--server", default=str(HERE.parent / "bin" / "understudy"))
    p.add_argument("--keep", help="folder for data and log; default a temporary one, kept when something is wrong")
    args = p.parse_args()
    short = args.seconds < 60
    args.patience = args.patience or (10 if short else 5)
    args.every = args.every or (2 if short else 3)
    args.clients = args.clients or (6 if short else 12)
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-killloop-"))
    folder.mkdir(exist_ok=True)
    rng = random.Random(args.seed)
    memory, interpreter, port = Memory(args.memory), Interpreter(folder / "interpreter"), free_port()
    print(f"seed {args.seed}; memory limit: {memory}", file=sys.stderr)
    server = Program(
        [args.server, "serve", "--config", str(HERE / "graphs" / "killloop.json"), "--port", str(port), "--data", str(folder / "data"),
         "--python", str(interpreter.path), "--workers", str(args.workers), "--log-level", "warning", "--grace", "10s",
         "--allow-broken-graphs"],  # it may start while the interpreter fails
        port, folder / "log", memory, interpreter,
    )
    killer = Killer(server, random.Random(rng.random()))
    plan = deal(FEW if short else FAULTS, random.Random(rng.random()), args.seconds, args.every)
    began = time.monotonic()
    killer.start()
    receivers = Receivers()
    try:
        await receivers.start()
        load = Load([server.url], random.Random(rng.random()), steady=killer.steady, receivers=receivers, slow=3, spread=0.3, pause=0.3)
        writes = Writes(load, SHORT if short else Sizes(), args.patience)
        check = KillCheck(load)
        clients = [asyncio.create_task(load.client(i)) for i in range(args.clients)] + [asyncio.create_task(load.dawdle()) for _ in range(load.slow)] + writes.clients()
        await killer.carry_out(plan, args.seconds)
        unsent = await settle(check, writes, clients, within=120, webhooks=0 if short else 150)
        killer.watch()
        if code := await asyncio.to_thread(server.stop):
            check.fail("the server did not stop in order", f"exit code {code}")
        check.tables(folder / "data")
    finally:
        server.kill()
        receivers.stop()
    for text in killer.deaths:
        check.fail("the server died by itself", text)
    log = (folder / "log").read_text(errors="replace")
    if "panic" in log:
        check.fail("panic in the log", log[log.index("panic"):][:500])
    return conclude(check, {
        "seconds": round(time.monotonic() - began), "seed": args.seed, "faults": dict(killer.done), **report(check, writes, memory, unsent),
    }, folder, bool(args.keep))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
