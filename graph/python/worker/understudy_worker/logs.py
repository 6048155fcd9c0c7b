"""What graphs print and log, sent to the server with the ids of the run that said it.

Lines of code that runs in no run go to the real standard output, which the server reads from a pipe; so does what C code writes.
"""
from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import time
from collections.abc import Callable

from .context import current

MAX_LINE = 32 << 10
# What of a flood passes: beyond it lines are counted, not sent. The server has limits of the same size for what comes by other ways.
LINES_A_SECOND, LINES_AT_ONCE = 1000, 10_000
BYTES_A_SECOND, BYTES_AT_ONCE = 1 << 20, 8 << 20

# (level, logger or stream, text, run id, thread id)
Send = Callable[[int, str, str, str, str], None]


class Sender:
    """Hands lines to the loop's thread, from whichever thread they come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._loop, self._send, self._thread = loop, send, threading.get_ident()
        self._lock = threading.Lock()
        self._lines, self._bytes, self._at = float(LINES_AT_ONCE), float(BYTES_AT_ONCE), time.monotonic()
        self._left = 0

    def _passes(self, size: int) -> int | None:
        """None: it does not. Else how many lines before it did not."""
        with self._lock:
            now = time.monotonic()
            self._lines = min(LINES_AT_ONCE, self._lines + (now - self._at) * LINES_A_SECOND)
            self._bytes = min(BYTES_AT_ONCE, self._bytes + (now - self._at) * BYTES_A_SECOND)
            self._at = now
            # After a flood a little room has to come back first, so that its end is told once and not line by line.
            enough = LINES_A_SECOND / 2 if self._left else 1
            if self._lines < enough or self._bytes < size:
                self._left += 1
                return None
            self._lines -= 1
            self._bytes -= size
            left, self._left = self._left, 0
            return left

    def told(self, level: int, source: str) -> None:
        """A run ended: what was left out of its output is worth a line although none may follow."""
        with self._lock:
            left, self._left = self._left, 0
        if left:
            self._pass(level, source, f"({left} lines were left out: they came too fast)")

    def __call__(self, level: int, source: str, text: str) -> None:
        if len(text) > MAX_LINE:
            text = text[:MAX_LINE] + "…"
        left = self._passes(len(text))
        if left is None:
            return
        if left:
            text = f"({left} lines before this were left out: they came too fast) {text}"
        self._pass(level, source, text)

    def _pass(self, level: int, source: str, text: str) -> None:
        who = current.get()
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
        self._sender.told(self._level, self._name)


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
