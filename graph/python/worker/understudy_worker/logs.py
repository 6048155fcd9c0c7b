"""What graphs print and log, sent to the server with the ids of the run that said it.

Lines of code that runs in no run go to the real standard output, which the server reads from a pipe; so does what C code writes.
"""
from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Callable

from .context import current

MAX_LINE = 32 << 10

# (level, logger or stream, text, run id, thread id)
Send = Callable[[int, str, str, str, str], None]


class Sender:
    """Hands lines to the loop's thread, from whichever thread they come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._loop, self._send, self._thread = loop, send, threading.get_ident()

    def __call__(self, level: int, source: str, text: str) -> None:
        who = current.get()
        if len(text) > MAX_LINE:
            text = text[:MAX_LINE] + "…"
        args = (level, source, text.encode("utf-8", "replace").decode(), who.run_id if who else "", who.thread_id if who else "")
        if threading.get_ident() == self._thread:
            self._send(*args)
        else:
            try:
                self._loop.call_soon_threadsafe(self._send, *args)
            except RuntimeError:
                pass  # the loop is closed


class Stream(io.TextIOBase):
    """Stands in for sys.stdout and sys.stderr."""

    def __init__(self, real, level: int, name: str, sender: Sender) -> None:
        self._real, self._level, self._name, self._sender = real, level, name, sender
        self._part: dict[str, str] = {}  # unfinished lines by run

    @property
    def encoding(self):
        return "utf-8"

    @property
    def buffer(self):
        return self._real.buffer

    def fileno(self) -> int:
        return self._real.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        try:
            self._real.flush()
        except (OSError, ValueError):
            pass

    def write(self, text: str) -> int:
        who = current.get()
        if who is None:
            try:
                self._real.write(text)
                if "\n" in text:
                    self._real.flush()
            except (OSError, ValueError):
                pass
            return len(text)
        held = self._part.pop(who.run_id, "") + text
        *lines, rest = held.split("\n")
        for line in lines:
            if line:
                self._sender(self._level, self._name, line)
        if len(rest) > MAX_LINE:
            self._sender(self._level, self._name, rest)
        elif rest:
            self._part[who.run_id] = rest
        return len(text)

    def finish(self, run_id: str) -> None:
        """The run ended: what it printed without a line end is a line too. Call it within the run's context."""
        if rest := self._part.pop(run_id, ""):
            self._sender(self._level, self._name, rest)


class Handler(logging.Handler):
    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sender(record.levelno, record.name, self.format(record))
        except Exception:
            pass


def install(loop: asyncio.AbstractEventLoop, send: Send) -> Sender:
    sender = Sender(loop, send)
    sys.stdout = Stream(sys.__stdout__, logging.INFO, "stdout", sender)
    sys.stderr = Stream(sys.__stderr__, logging.WARNING, "stderr", sender)
    root = logging.getLogger()
    root.addHandler(Handler(sender))
    if root.level == logging.WARNING:
        root.setLevel(logging.INFO)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    return sender


def finish(run_id: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Stream):
            stream.finish(run_id)
