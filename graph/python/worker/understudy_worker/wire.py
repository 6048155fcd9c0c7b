"""Frames over the inherited socket: four bytes of length, big endian, then msgpack.

From the server a frame is one message. To the server a frame is one or more messages, one after the other: everything that was
sent within one turn of the loop, or a few when it is busy, leaves in one write.
"""
from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import ormsgpack

from . import fatal

# What is sent at most: half of what the server reads, for it holds several copies of a value while it is saved and shown.
MAX_FRAME = 256 << 20
# Half a megabyte is sent at once rather than at the end of the turn, so that large values do not pile up.
EAGER = 512 << 10
# How many turns of a busy loop a message may wait for others.
TURNS = 3
# How long, in seconds, a message may wait that has no hurry.
LATE = 0.005

# Kinds of messages. The numbers are those of message.go.
HELLO, EVENT, DONE, ASK, LOG, PONG, LOADING, CALLED, LOADED, NODE, BEGIN, END = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
RUN, CANCEL, ANSWER, PING, CALL, PAUSE, REFUSE, GO = 1, 2, 3, 4, 5, 6, 7, 8

pack = ormsgpack.packb


def frame(message: list) -> bytes:
    packed = pack(message)
    return len(packed).to_bytes(4, "big") + packed


class FrameTooLarge(Exception):
    """A value is larger than a frame may be."""


class Wire(asyncio.Protocol):
    def __init__(self, on_message: Callable[[list], None]) -> None:
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()
        self._out: list[bytes] = []
        self._size = 0
        self._scheduled = False
        self._late: asyncio.TimerHandle | None = None  # sends what has no hurry
        self._transport: asyncio.Transport | None = None
        self._open = asyncio.Event()
        self._open.set()

    def connection_made(self, transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=4 << 20)

    def connection_lost(self, exc) -> None:
        # A message that could not be handled ends the connection too.
        if exc is not None and not isinstance(exc, OSError):
            fatal.end(exc)
        # The server is gone. Nothing that a graph still does could be kept.
        os._exit(0)

    def pause_writing(self) -> None:
        self._open.clear()

    def resume_writing(self) -> None:
        self._open.set()

    @property
    def congested(self) -> bool:
        return not self._open.is_set()

    async def drained(self) -> None:
        await self._open.wait()

    def data_received(self, data: bytes) -> None:
        buf = self._in
        buf += data
        at, size = 0, len(buf)
        while size - at >= 4:
            end = at + 4 + int.from_bytes(buf[at:at + 4], "big")
            if end > size:
                break
            message = ormsgpack.unpackb(bytes(buf[at + 4:end]))
            at = end
            self._on_message(message)
        if at:
            del buf[:at]

    def send(self, message: list) -> int:
        """Queues a message and gives its size. Call it from the loop's thread only."""
        packed = self._queue(message)
        if self._size > EAGER:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn, self._size, TURNS)
        return len(packed)

    def send_late(self, message: list) -> None:
        """Queues a message that leaves with the next one, or after a few milliseconds. A write of its own would cost more than the message."""
        self._queue(message)
        if self._size > EAGER:
            self.flush()
        elif not self._scheduled and self._late is None:
            self._late = self._loop.call_later(LATE, self._overdue)

    def _queue(self, message: list) -> bytes:
        packed = pack(message)
        if len(packed) > MAX_FRAME:
            raise FrameTooLarge(f"a value of {len(packed)} bytes is larger than the {MAX_FRAME} that can be saved or streamed at once: keep it in a file or an object store, and its name in the state")
        if self._size + len(packed) > MAX_FRAME:
            self.flush()
        self._out.append(packed)
        self._size += len(packed)
        return packed

    def _turn(self, before: int, turns: int) -> None:
        # While more comes in each turn, a few of them share a write. Turns that do something follow one another without a pause.
        if turns and self._size > before:
            self._loop.call_soon(self._turn, self._size, turns - 1)
            return
        self._scheduled = False
        self._overdue()

    def _overdue(self) -> None:
        try:
            self.flush()
        except Exception as exc:
            fatal.end(exc)  # the server would wait for ever for what is lost

    def flush(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._out:
            out, size = self._out, self._size
            self._out, self._size = [], 0
            self._transport.write(b"".join([size.to_bytes(4, "big"), *out]))
