"""One request and its answer, or one WebSocket, over the connection to the server: pieces of bodies, with a limit to what is on its way."""
from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from . import codec, wire as w


class Gone(OSError):
    """The other side has given the stream up."""


class Stream:
    """Both halves of a stream. The other side's frames arrive by the methods on_...; all is called on the loop."""

    def __init__(self, wire: w.Wire, number: int) -> None:
        self._wire, self.number = wire, number
        self._in: deque[tuple[int, bytes]] = deque()
        self._arrived = asyncio.Event()
        self._owed = 0  # bytes that were read, and are not granted again yet
        self._room = w.WINDOW
        self._credited = asyncio.Event()
        self.gone = False  # the other side has aborted
        self.sent_end = False
        self.received_end = False

    # --- from the server -------------------------------------------------------------------

    def on_frame(self, kind: int, payload: bytes) -> None:
        if kind == w.CREDIT:
            self._room += int.from_bytes(payload, "big")
            self._credited.set()
            return
        if kind == w.ABORT:
            self.gone = True
            self._credited.set()
        elif kind == w.END:
            self.received_end = True
        self._in.append((kind, payload))
        self._arrived.set()

    async def next(self) -> tuple[int, bytes]:
        """The next frame. After an END or ABORT there is none: it waits for ever, or for an ABORT."""
        while not self._in:
            self._arrived.clear()
            await self._arrived.wait()
        kind, payload = self._in.popleft()
        if kind in (w.BODY, w.TEXT, w.BINARY) and payload:
            self._owed += len(payload)
            if self._owed >= w.WINDOW // 4 and not self.gone:
                self._wire.send(w.CREDIT, self.number, self._owed.to_bytes(4, "big"))
                self._owed = 0
        return kind, payload

    # --- to the server ---------------------------------------------------------------------

    def head(self, kind: int, value: dict[str, Any]) -> None:
        self._wire.send(kind, self.number, codec.dumps(value))

    async def body(self, data: bytes) -> None:
        for at in range(0, len(data), w.PIECE):
            await self._piece(w.BODY, data[at:at + w.PIECE])

    async def message(self, kind: int, data: bytes) -> None:
        """One message of a WebSocket, whole: it may be larger than the window."""
        await self._piece(kind, data)

    async def _piece(self, kind: int, data: bytes) -> None:
        while self._room <= 0 and not self.gone:
            self._credited.clear()
            await self._credited.wait()
        if self.gone:
            raise Gone("the client has left")
        self._room -= len(data)
        self._wire.send(kind, self.number, data)
        await self._wire.drained()

    def end(self) -> None:
        if not self.sent_end and not self.gone:
            self.sent_end = True
            self._wire.send(w.END, self.number)

    def abort(self) -> None:
        if not self.sent_end and not self.gone:
            self.sent_end = True
            self._wire.send(w.ABORT, self.number)
