"""Frames over the inherited socket: four bytes of length, one of kind, four with the number of a call or stream (big endian), then the payload.

The server numbers its calls and streams below half of the range, this process its own above. Bodies pass in pieces of at most PIECE bytes; who
reads them grants how many bytes may be on their way, so that one stream cannot fill the memory or hold up the others.
"""
from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable

from . import fatal

HEAD = struct.Struct(">IBI")
PIECE = 64 << 10
WINDOW = 1 << 20

# Kinds of frames; protocol.go has the same. To this process:
CALL, CANCEL, PING, STOP = 1, 2, 3, 4
# From it:
HELLO, RESULT, PONG, LOG, STOPPED = 11, 12, 13, 14, 15
# Both ways:
OPEN, HEADERS, BODY, END, ABORT, CREDIT, TEXT, BINARY, CLOSE = 21, 22, 23, 24, 25, 26, 27, 28, 29

OURS = 1 << 31


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) + 5, kind, number) + payload


class Wire(asyncio.Protocol):
    def __init__(self, handle: Callable[[int, int, bytes], None]) -> None:
        self._handle = handle
        self._in = bytearray()
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=1 << 20)

    def connection_lost(self, exc) -> None:
        if exc is not None and not isinstance(exc, OSError):
            fatal.end(exc)
        os._exit(0)  # the server is gone, or wants no more

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    async def drained(self) -> None:
        await self._drained.wait()

    def data_received(self, data: bytes) -> None:
        buf = self._in
        buf += data
        at, size = 0, len(buf)
        while size - at >= 9:
            length, kind, number = HEAD.unpack_from(buf, at)
            end = at + 4 + length
            if end > size:
                break
            payload = bytes(buf[at + 9:end])
            at = end
            self._handle(kind, number, payload)
        if at:
            del buf[:at]

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Call it from the loop's thread only."""
        self._transport.write(frame(kind, number, payload))
