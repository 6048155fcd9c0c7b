"""A Postgres and a Redis of one's own, gone when they are not wanted any more.

`python3 databases.py COMMAND ...` runs a command that has their addresses in UNDERSTUDY_DATABASE_URL and UNDERSTUDY_REDIS_URL.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

START_SECONDS = 90


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def initdb() -> pathlib.Path | None:
    """Debian keeps the programs of Postgres away from PATH."""
    found = shutil.which("initdb")
    if found:
        return pathlib.Path(found)
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]) if p.parts[-3].isdigit() else 0)
    return versions[-1] if versions else None


@contextlib.contextmanager
def postgres():
    """Gives a function that makes an empty database and gives its address."""
    programs = initdb().resolve().parent  # a link to one of them has not the others beside it
    folder = pathlib.Path(tempfile.mkdtemp(prefix="understudy-postgres-"))
    who = {}
    if os.getuid() == 0:  # Postgres does not run as root
        import pwd

        name = next(n for n in ("postgres", "nobody") if n in {p.pw_name for p in pwd.getpwall()})
        user = pwd.getpwnam(name)
        os.chown(folder, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    common = {"cwd": folder, "env": {"PATH": str(programs), "LC_ALL": "C.UTF-8", "TZ": "UTC"}, **who}
    data, port = folder / "data", free_port()
    at = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
    try:
        subprocess.run([programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"], check=True, stdout=subprocess.DEVNULL, **common)
        process = subprocess.Popen([programs / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder, "-c", "fsync=off",
                                    "-c", "shared_buffers=16MB"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **common)
        try:
            ready(process, "postgres", lambda: subprocess.run([programs / "pg_isready", "-q", *at], **common).returncode == 0)
            made = 0

            def database() -> str:
                nonlocal made
                made += 1
                subprocess.run([programs / "createdb", *at, f"database_{made}"], check=True, **common)
                return f"postgres://postgres@127.0.0.1:{port}/database_{made}"

            yield database
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis():
    """Gives the address of an empty Redis that keeps nothing."""
    with tempfile.TemporaryDirectory(prefix="understudy-redis-") as folder:
        path = pathlib.Path(folder) / "socket"
        process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--dir", folder, "--save", "", "--appendonly", "no"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(str(path))
                probe.sendall(b"PING\r\n")
                return probe.recv(7) == b"+PONG\r\n"
            return False

        try:
            ready(process, "redis", answers)
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def ready(process, name, answers):
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        assert process.poll() is None and time.monotonic() < deadline, f"{name} did not start"
        time.sleep(0.05)


if __name__ == "__main__":
    with postgres() as database, redis() as streams:
        raise SystemExit(subprocess.run(sys.argv[1:], env=os.environ | {"UNDERSTUDY_DATABASE_URL": database(), "UNDERSTUDY_REDIS_URL": streams}).returncode)
