"""Parts that do not finish loading. What hangs is named by the variable HANGS."""
import asyncio
import contextlib
import os
import time

from starlette.applications import Starlette

HANGS = os.environ["HANGS"]


def wait():
    time.sleep(3600)  # HERE


@contextlib.asynccontextmanager
async def startup(app):
    await asyncio.sleep(3600)  # ALSO HERE
    yield


def spin():
    import ctypes
    ctypes.pythonapi.sleep(3600)  # with the lock of the interpreter, so that no thread of it can report


while HANGS == "compute":
    pass
if HANGS == "import":
    wait()
if HANGS == "lock":
    spin()

app = Starlette(lifespan=startup)
