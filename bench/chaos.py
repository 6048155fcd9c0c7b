"""Three servers on one Postgres and one Redis, under load, while everything that can fail does; then checks that nothing was lost.

    bench/chaos [--seconds 600] [--clients 20] [--seed N] [--lease 20] [--memory 1024]

A run of less than two minutes has a lease of 4 s and faults in quicker succession, so that it sees as much; takeovers are timed then, not judged.

Postgres, Redis and the servers are this program's own, in a temporary folder. Clients start runs of a Python graph and of an agent in Go with every
multitask strategy, each request at any of the servers; they cancel some, wait for some, and follow some, leave them now and then, and come back
with Last-Event-ID at another server. Others write, copy and delete what writes.py says, read slowly, and let webhooks hang. Servers have a memory limit,
and the clock of the last one is wrong all the time. Meanwhile, at random moments that the seed repeats:

- servers and workers are killed (SIGKILL); servers are started again
- servers stand still (SIGSTOP) for longer than their lease, or for a moment, and go on (SIGCONT)
- Redis is killed and comes back empty; its connections are cut; it is full (maxmemory, noeviction), and has room again
- Postgres is stopped at once, as by a crash, and started again; its connections are cut
- no worker of a server can start for seconds
- the clock of the last server jumps, minutes ahead or behind

Then all must come to rest, and what the API and the tables say is held against what was acknowledged:

- every run that was acknowledged has ended, unless a rollback was asked for that takes it along; who waited got its result
- its messages are in the state and in the log once, in order; all of them if it succeeded, none if it was rolled back
- every state update, copy, patch of metadata and item of the store that was acknowledged is there, whole, and what was deleted is gone
- events of a thread are numbered 1, 2, 3…; no thread is busy, nothing dangles in the tables
- no row of attempt n of a run was committed after the first row of attempt n + 1, by the clock of Postgres (track_commit_timestamp)
- a subscriber saw each kept record once, in order, and missed none that a later replay shows
- no run of a server to which nothing was done was taken over, whatever clock it or the others have
- what a server held that was killed or stood still is taken over in time: within a lease, a heartbeat and a little; that time is counted from
  the kill to the beginning of the next attempt, without the time in which Postgres was away
- writes of servers that stood still were refused when they woke (they are counted)
- a small write and a plain read never waited long at a server to which nothing was being done
- no server ended by itself, but for those that start while Postgres is away

Prints one line with runs, writes, faults, takeovers and losses; exit code 1 when anything was lost, doubled, stuck or late.
"""
from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import datetime
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from faults import Interpreter, Memory, Program, Receivers, deal, free_port, shifted
from soak import TURNS, Check, Graph, Load
from writes import SHORT, Sizes, Writes, conclude, report, settle

HERE = Path(__file__).resolve().parent

CALLER = Graph(
    "caller",
    lambda tag, steps, delay, pad: {"messages": [{"role": "user", "content": f"{tag} ask"}]},
    lambda tag, steps: [f"{tag} ask", f"{tag} 0 let me work that out", tag, f"{tag} 1 is what comes of it"],
)

# What happens, and how often next to the others.
FAULTS = {
    "kill server": 3, "kill worker": 4, "pause past the lease": 2, "pause for a moment": 1, "no python": 1, "set the clock": 2,
    "restart redis": 1, "cut redis": 1, "fill redis": 2, "restart postgres": 1, "cut postgres": 2, "calm": 2,
}
ONCE = dict.fromkeys(FAULTS, 1)  # in a short run

# Seconds that the clock of the last server is ahead, one after the other.
CLOCKS = [600, -600, 0, 90, -5, 3600]


def stop_now(process: subprocess.Popen | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


class Postgres:
    """A cluster of its own. Postgres does not run as root: then it runs as somebody else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.process = folder, free_port(), None
        found = shutil.which("initdb") or max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]), default=None)
        if found is None:
            sys.exit("there is no initdb on PATH or in /usr/lib/postgresql; on Debian: apt-get install postgresql")
        self.bin = Path(found).parent
        self.who = {}
        folder.mkdir()
        if os.getuid() == 0:
            user = next((pwd.getpwnam(n) for n in ("postgres", "nobody") if n in {u.pw_name for u in pwd.getpwall()}), None)
            self.who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        subprocess.run(
            [self.bin / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"PATH": str(self.bin), "LC_ALL": "C.UTF-8"}, **self.who,
        )
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def start(self) -> None:
        with open(self.folder.parent / "postgres.log", "ab") as log:
            # What a process wrote survives its death without fsync; only that of the machine would tell the difference.
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder, "-c", "fsync=off",
                 "-c", "max_connections=120", "-c", "shared_buffers=64MB", "-c", "track_commit_timestamp=on", "-c", "log_line_prefix=%m %a ",
                 "-c", "log_min_error_statement=panic"],
                stdout=log, stderr=log, cwd=self.folder, env={"PATH": str(self.bin), "LC_ALL": "C.UTF-8", "TZ": "UTC"}, **self.who,
            )

    def ready(self, within: float = 60) -> None:
        end = time.monotonic() + within
        while True:
            try:
                self.ask("SELECT 1")
                return
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def crash(self) -> None:
        """An immediate shutdown: nothing is written, and the next start recovers."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def ask(self, sql: str, *args) -> list[tuple]:
        with psycopg.connect(self.url + "&application_name=chaos", connect_timeout=5, autocommit=True) as conn:
            return conn.execute(sql, args or None).fetchall()


class Redis:
    """A Redis that keeps nothing over a restart."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            sys.exit("there is no redis-server on PATH; on Debian: apt-get install redis-server")
        self.folder, self.port, self.process = folder, free_port(), None
        folder.mkdir()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        with open(self.folder.parent / "redis.log", "ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", "--appendonly", "no", "--loglevel", "warning"],
                stdout=log, stderr=log,
            )

    def cut(self) -> None:
        self.say("CLIENT KILL TYPE normal SKIPME yes")

    def full(self, full: bool) -> None:
        """Has it refuse what needs memory, or not any more."""
        self.say("CONFIG SET maxmemory-policy noeviction")
        self.say(f"CONFIG SET maxmemory {1 if full else 0}")

    def say(self, command: str) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(command.encode() + b"\r\n")
            if (answer := s.recv(1000)).startswith(b"-"):
                raise RuntimeError(f"{command}: {answer}")


class Server(Program):
    """One of the servers, through all its lives."""

    def __init__(self, number: int, args: argparse.Namespace, program: str, postgres: Postgres, redis: Redis, folder: Path, memory: Memory, clock: Path | None) -> None:
        self.number, port = number, free_port()
        interpreter = Interpreter(folder / f"interpreter{number}", clock)
        database = f"{postgres.url}&application_name=server{number}"
        super().__init__([
            program, "serve", "--config", str(HERE / "graphs" / "chaos.json"), "--port", str(port), "--python", str(interpreter.path), "--workers", str(args.workers),
            "--jobs-per-worker", str(args.clients + 12),  # one server has room for all that runs, or takeovers would wait for it
            "--database-url", database, "--redis-url", redis.url, "--lease", f"{args.lease:g}s", "--log-level", "info", "--log-json", "--grace", "10s",
            "--allow-broken-graphs",  # it may start while the interpreter fails
        ], port, folder / f"server{number}.log", memory, interpreter, {"SHIFT_CLOCK_FILE": str(clock)} if clock else None)
        self.busy = False  # something is being done to it
        self.started = 0.0

    def start(self) -> None:
        super().start()
        self.started = time.monotonic()

    def said(self) -> list[dict]:
        lines = []
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                lines.append(json.loads(line))
        return lines


class Chaos:
    """Does what the plan says, and keeps book."""

    def __init__(self, args: argparse.Namespace, postgres: Postgres, redis: Redis, servers: list[Server], clock: Path) -> None:
        self.args, self.postgres, self.redis, self.servers, self.clock = args, postgres, redis, servers, clock
        self.done: collections.Counter = collections.Counter()
        self.held: list[tuple[float, str, int]] = []  # (when its server was stopped, run, attempt)
        self.away: list[tuple[float, float]] = []  # when Postgres was
        self.troubles: list[tuple[int | None, float, float]] = []  # (server, None for all; from when to when it may have lost its leases)
        self.tasks: list[asyncio.Task] = []
        self.deaths: list[str] = []
        self.upset = 0.0  # when something was done to Postgres
        self.storing = asyncio.Lock()  # one at a time is done to Postgres
        self.carrying = asyncio.Lock()  # and to Redis

    async def carry_out(self, plan: list[tuple[float, str, list[float]]]) -> None:
        began = time.monotonic()
        for at, kind, numbers in plan:
            await asyncio.sleep(max(0, began + at - time.monotonic()))
            self.tasks.append(asyncio.create_task(self.fault(kind, *numbers)))
        await asyncio.gather(*self.tasks)

    def target(self, number: float) -> Server | None:
        """A server to which nothing is being done, unless it would be the last."""
        free = [s for s in self.servers if not s.busy]
        return free[int(number * len(free))] if len(free) > 1 else None

    def steady(self) -> list[str]:
        """Those that can be expected to answer at once."""
        now = time.monotonic()
        if self.storing.locked() or now < self.upset + 5:
            return []
        return [s.url for s in self.servers if s.alive() and not s.busy and now > s.started + 5]

    def note(self, text: str) -> None:
        """Says in the folder of the logs what is done, with the times that the servers have."""
        with open(self.clock.parent / "faults.log", "a") as log:
            print(datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"), text, file=log)

    async def fault(self, kind: str, whom: float, how: float, long: float) -> None:
        lease = self.args.lease
        if kind == "set the clock":
            ahead = CLOCKS[self.done[kind] % len(CLOCKS)]
            self.note(f"{kind}: {ahead} s ahead")
            self.clock.write_text(str(ahead))
        elif kind == "no python":
            server = self.servers[int(whom * len(self.servers))]
            self.note(f"{kind}: server{server.number}")
            await server.without_python(2 + 6 * long)
            self.note(f"{kind}: server{server.number} is back")
        elif kind in ("kill server", "pause past the lease", "pause for a moment"):
            server = self.target(whom)
            if server is None:
                self.done["left out"] += 1
                return
            server.busy, since = True, time.time()
            self.note(f"{kind}: server{server.number}")
            try:
                await getattr(self, kind.split(" ")[0])(server, lease * (0.2 + 0.4 * long) if "moment" in kind else lease * (1.4 + 0.4 * long), how)
            finally:
                server.busy = False
                self.troubles.append((server.number, since, time.time()))
                self.note(f"{kind}: server{server.number} is back")
        elif kind == "kill worker":
            workers = [pid for s in self.servers if not s.busy for pid in s.workers()]
            if not workers:
                self.done["left out"] += 1
                return
            self.note(kind)
            try:
                os.kill(workers[int(whom * len(workers))], signal.SIGKILL)
            except ProcessLookupError:
                pass
        elif kind.endswith("redis"):
            async with self.carrying:
                self.note(kind)
                if kind == "cut redis":
                    with contextlib.suppress(OSError):  # it was started just now, and does not listen yet
                        await asyncio.to_thread(self.redis.cut)
                elif kind == "fill redis":
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(self.redis.full, True)
                    await asyncio.sleep(2 + 8 * long)
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(self.redis.full, False)
                    self.note("redis has room")
                else:
                    stop_now(self.redis.process)
                    await asyncio.sleep([0, 0.5, 5][int(how * 3)] * (0.5 + long))
                    self.redis.start()
                    self.note("redis is back")
        else:
            async with self.storing:
                self.note(kind)
                self.upset, since = float("inf"), time.time()
                if kind == "cut postgres":
                    # Those of one server, or of all.
                    name = "server%" if how < 0.5 else f"server{int(whom * len(self.servers))}"
                    await asyncio.to_thread(self.postgres.ask, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s", name)
                else:
                    began = time.time()
                    await asyncio.to_thread(self.postgres.crash)
                    await asyncio.sleep([0, 0.5, 4][int(how * 3)] * (0.5 + long))
                    self.postgres.start()
                    await asyncio.to_thread(self.postgres.ready)
                    self.note("postgres is back")
                    # Leases that nobody could renew meanwhile are not taken over before a heartbeat.
                    self.away.append((began, time.time() + 1 + self.args.lease / 4))
                self.upset = time.monotonic()
                self.troubles.append((None, since, time.time()))
        self.done[kind] += 1

    async def hold(self, server: Server, when: float) -> None:
        """Notes which runs a stopped server holds."""
        owner = next((line["instance"] for line in reversed(server.said()) if "instance" in line), None)
        async with self.storing:
            rows = await asyncio.to_thread(self.postgres.ask, "SELECT run_id, attempt FROM runs WHERE status = 'running' AND owner = %s", owner)
        self.held += [(when, run, attempt) for run, attempt in rows]

    async def kill(self, server: Server, _: float, how: float) -> None:
        if not server.alive():
            return
        when = time.time()
        await asyncio.to_thread(Program.kill, server)
        await self.hold(server, when)
        await asyncio.sleep(how * self.args.lease / 2)
        server.start()

    async def pause(self, server: Server, seconds: float, _: float) -> None:
        if not server.alive():
            return
        server.process.send_signal(signal.SIGSTOP)
        when = time.time()
        if seconds > self.args.lease:
            await self.hold(server, when)
        await asyncio.sleep(max(0, when + seconds - time.time()))
        server.process.send_signal(signal.SIGCONT)
        server.started = time.monotonic()  # it has to catch up

    async def watch(self) -> None:
        """Starts servers again that ended by themselves: they do when Postgres is away while they start."""
        while True:
            await asyncio.sleep(0.5)
            for s in self.servers:
                if s.alive():
                    s.memory.look(s.process.pid)
                elif not s.busy:
                    if s.process.returncode != 1:
                        self.deaths.append(f"{s.log}: exit code {s.process.returncode}: {s.log.read_text(errors='replace')[-1500:]}")
                    self.done["starts again"] += 1
                    self.troubles.append((s.number, time.time() - 1, time.time()))
                    s.start()


class ChaosCheck(Check):
    """What the API and the tables say."""

    def __init__(self, load: Load, postgres: Postgres) -> None:
        super().__init__(load)
        self.postgres = postgres

    def tables(self) -> None:
        self.rows(self.postgres.ask, [name for name, in self.postgres.ask(
            "SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) "
            "WHERE column_name = 'thread_id' AND table_schema = 'public' AND table_type = 'BASE TABLE'")])
        self.none(self.postgres.ask, "table run_heads: left", "SELECT thread_id, run_id FROM run_heads")
        self.none(self.postgres.ask, "a row of an attempt was committed after the next attempt had begun", """
            WITH written AS (
                SELECT run_id AS run, (c.metadata->>'run_attempt')::bigint AS attempt, pg_xact_commit_timestamp(c.xmin) AS at
                FROM checkpoints c JOIN runs ON run_id = c.metadata->>'run_id' AND runs.thread_id = c.thread_id -- not those of copies
                WHERE c.metadata ? 'run_attempt'
                UNION ALL
                SELECT run_id, attempt, pg_xact_commit_timestamp(xmin) FROM stream_records
            ), spans AS (SELECT run, attempt, min(at) AS first, max(at) AS last FROM written GROUP BY run, attempt)
            SELECT a.run, a.attempt, b.attempt, a.last, b.first FROM spans a JOIN spans b ON b.run = a.run AND b.attempt > a.attempt AND b.first < a.last""")

    def begun(self) -> dict[tuple[str, int], float]:
        """When the attempts of runs began, by the clock of Postgres."""
        return {(run, attempt): at for run, attempt, at in self.postgres.ask(
            "SELECT run_id, attempt, min(extract(epoch FROM pg_xact_commit_timestamp(xmin)))::float8 FROM stream_records GROUP BY run_id, attempt")}

    def stolen(self, chaos: Chaos) -> None:
        """Nothing is taken over from a server to which nothing was done for some leases."""
        begun, owners = self.begun(), {}
        for s in chaos.servers:
            owners |= {line["instance"]: s.number for line in s.said() if "instance" in line}
        for line in (line for s in chaos.servers for line in s.said() if line.get("msg", "").startswith("run taken over")):
            owner, at = owners.get(line["owner"]), begun.get((line["run_id"], line["attempt"] + 1))
            if at is not None and not any(
                number in (None, owner) and since < at and until > at - 4 * chaos.args.lease for number, since, until in chaos.troubles
            ):
                self.fail("run taken over from a server that lives", f"{line}, server{owner} at {at}")

    def takeovers(self, chaos: Chaos) -> list[tuple[float, str, int]]:
        """Seconds from when a server was stopped until the next attempt of a run that it held, or its end, was committed."""
        begun = self.begun()
        over = {run: at / 1e6 for run, at in self.postgres.ask("SELECT run_id, ended_at FROM runs WHERE ended_at IS NOT NULL")}
        times = []
        for when, run, attempt in chaos.held:
            at = begun.get((run, attempt + 1), over.get(run))
            if at is None or at < when:
                continue  # it was rolled back, or had ended
            out = sum(max(0, min(at, back) - max(when, gone)) for gone, back in chaos.away)
            times.append((round(at - when - out, 1), run, attempt))
        return sorted(times)


async def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--clients", type=int, help="default 20, or 8 in a short run")
    p.add_argument("--servers", type=int, default=3)
    p.add_argument("--workers", type=int, default=1, help="Python processes of each server")
    p.add_argument("--lease", type=float, help="seconds; default 20, or 4 in a run of less than two minutes")
    p.add_argument("--every", type=float, help="seconds between faults, about; default a fifth of the lease, or more in a short run")
    p.add_argument("--memory", type=int, default=1024, help="MiB that each server may have; 0 for any")
    p.add_argument("--patience", type=float, help="seconds that a small write or a plain read may wait; default 5, or 10 in a short run, next to which other tests may run")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--server", default=str(HERE.parent / "bin" / "understudy"))
    p.add_argument("--shifted", help="the program of the server whose clock is wrong; default: it is built")
    p.add_argument("--keep", help="folder for logs; default a temporary one, kept when something is wrong")
    args = p.parse_args()
    short = args.seconds < 120
    args.patience = args.patience or (10 if short else 5)
    args.lease = args.lease or (4 if short else 20)
    args.clients = args.clients or (8 if short else 20)
    args.every = args.every or max(1.5, args.lease / 5)
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-chaos-"))
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # Postgres may be somebody else
    rng = random.Random(args.seed)
    plan = deal(ONCE if short else FAULTS, random.Random(rng.random()), args.seconds, args.every)
    memory, clock = Memory(args.memory), folder / "clock"
    clock.write_text(str(CLOCKS[0]))
    wrong = args.shifted or shifted(str(folder / "understudy-shifted"), folder / "shifted")
    print(f"seed {args.seed}; memory limit: {memory}; clock of server{args.servers - 1}: {clock}", file=sys.stderr)
    postgres, redis = Postgres(folder / "postgres"), Redis(folder / "redis")
    servers = [Server(i, args, args.server, postgres, redis, folder, memory, None) for i in range(args.servers - 1)]
    servers.append(Server(args.servers - 1, args, wrong, postgres, redis, folder, memory, clock))
    chaos, receivers = Chaos(args, postgres, redis, servers, clock), Receivers()
    began = time.monotonic()
    watching = None
    try:
        await receivers.start()
        load = Load(
            [s.url for s in servers], random.Random(rng.random()), graphs=[TURNS, TURNS, CALLER], delays=(0.03, 0.1, 0.5), leave=0.01, patience=12, pause=1,
            steady=chaos.steady, receivers=receivers, slow=3,
        )
        check = ChaosCheck(load, postgres)
        postgres.start()
        redis.start()
        postgres.ready()
        for s in servers:
            s.start()
        watching = asyncio.create_task(chaos.watch())
        await load.get("/ok")
        writes = Writes(load, SHORT if short else Sizes(), args.patience)
        clients = [asyncio.create_task(load.client(i)) for i in range(args.clients)] + [asyncio.create_task(load.dawdle()) for _ in range(load.slow)] + writes.clients()
        await chaos.carry_out(plan)
        unsent = await settle(check, writes, clients, within=120 + 4 * args.lease, webhooks=0 if short else 150)
        watching.cancel()
        for s in servers:
            s.process.send_signal(signal.SIGTERM)
        for s in servers:
            if code := await asyncio.to_thread(s.process.wait, 60):
                check.fail("a server did not stop in order", f"{s.log}: exit code {code}")
        check.tables()
        check.stolen(chaos)
        times = check.takeovers(chaos)
    finally:
        if watching is not None:
            watching.cancel()
        for s in servers:
            s.kill()
        receivers.stop()
        stop_now(redis.process)
        if postgres.process is not None and postgres.process.poll() is None:
            postgres.crash()
    for text in chaos.deaths:
        check.fail("a server died by itself", text)
    fenced = 0
    for s in servers:
        fenced += sum(line.get("msg", "").startswith("write refused") for line in s.said())
        if (text := s.log.read_text(errors="replace")).find("panic") >= 0:
            check.fail("panic in a log", text[text.index("panic"):][:500])
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))][0] if times else 0.0
    if args.lease >= 20 and p99 >= args.lease * 1.25:
        check.fail("takeovers are late", f"p99 {p99:.1f} s, lease {args.lease:g} s: {times[-5:]}")
    return conclude(check, {
        "seconds": round(time.monotonic() - began), "seed": args.seed, "faults": dict(chaos.done), "kills": chaos.done["kill server"] + chaos.done["kill worker"],
        "taken over": len(times), "takeover p99": round(p99, 1), "fenced": fenced, **report(check, writes, memory, unsent),
    }, folder, bool(args.keep))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
