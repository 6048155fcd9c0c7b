"""Lets the server ask where a thread is that holds Python's global lock, when nothing else in this process can run (stall.go)."""
from __future__ import annotations

import faulthandler
import os
import sys

# The server knows it too (DumpSignal).
SIGNAL = 44


def install() -> None:
    """Writes the stack of the thread that receives SIGNAL to standard error, as it is now: graphs may close or replace theirs."""
    if sys.platform != "linux":
        return
    try:
        faulthandler.register(SIGNAL, file=os.dup(2), all_threads=False)
    except (OSError, RuntimeError, ValueError):
        pass  # the server reports without a place
