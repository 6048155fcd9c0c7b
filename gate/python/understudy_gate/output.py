"""What handlers and routes log, sent to the server."""
from __future__ import annotations

import asyncio
import logging
import threading

from . import codec, wire as w

MAX_TEXT = 32 << 10


class Handler(logging.Handler):
    def __init__(self, loop: asyncio.AbstractEventLoop, wire: w.Wire) -> None:
        super().__init__()
        self._loop, self._wire, self._thread = loop, wire, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = codec.dumps({"level": record.levelno, "logger": record.name, "text": self.format(record)[:MAX_TEXT]})
            if threading.get_ident() == self._thread:
                self._wire.send(w.LOG, 0, line)
            else:
                self._loop.call_soon_threadsafe(self._wire.send, w.LOG, 0, line)
        except Exception:
            pass  # logging must not fail a request


def install(loop: asyncio.AbstractEventLoop, wire: w.Wire) -> None:
    root = logging.getLogger()
    root.addHandler(Handler(loop, wire))
    if root.level == logging.WARNING:
        root.setLevel(logging.INFO)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.captureWarnings(True)
