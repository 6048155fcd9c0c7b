"""An application whose routes do what they should not."""
import asyncio
import gc
import os
import threading
import time
from contextlib import asynccontextmanager

from langgraph_sdk import get_client
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

left: list[str] = []


async def hello(request: Request):
    return PlainTextResponse("hello")


async def hang(request: Request):
    try:
        await asyncio.Event().wait()
    finally:
        left.append("hang")


async def collect(request: Request):
    gc.collect()
    return PlainTextResponse("collected")


async def drip(request: Request):
    async def pieces():
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            left.append("drip")

    return StreamingResponse(pieces())


async def half(request: Request):
    async def pieces():
        yield b"first"
        raise RuntimeError("secret of the route")

    return StreamingResponse(pieces())


async def garbage(request: Request):
    return 7


async def crash(request: Request):
    raise RuntimeError("secret of the route")


async def wrong(request: Request):
    raise ValueError("the reason of the route")


async def leave(request: Request):
    raise SystemExit(3)


async def exit_now(request: Request):
    os._exit(4)


async def block(request: Request):
    time.sleep(3600)


async def forks(request: Request):
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(3600,)).start()
    return PlainTextResponse("forked")


async def count(request: Request):
    n = 0
    async for piece in request.stream():
        n += len(piece)
    return JSONResponse({"bytes": n})


async def refuse(request: Request):
    return PlainTextResponse("no", 413)  # without a look at the body


async def flood(request: Request):
    async def pieces():
        for _ in range(1024):
            yield b"x" * (64 << 10)

    return StreamingResponse(pieces())


class Split:
    """A response that would end its head early."""

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [
            (b"x-good", b"1"), (b"x-bad", b"1\r\nset-cookie: stolen=1"), (b"x-bad\r\nset-cookie", b"1"), (b"transfer-encoding", b"chunked"), (b"connection", b"upgrade")]})
        await send({"type": "http.response.body", "body": b"split"})


class Twice:
    async def __call__(self, scope, receive, send):
        for _ in range(2):
            await send({"type": "http.response.start", "status": 200, "headers": []})


async def late(request: Request):
    async def task():
        left.append("task")
        raise RuntimeError("secret of the task")

    return PlainTextResponse("done", background=BackgroundTask(task))


async def who_left(request: Request):
    return JSONResponse(left)


async def api(request: Request):
    headers = dict(request.query_params)
    if "forward" in headers:
        headers = {k: v for k, v in request.headers.items() if k not in ("content-length", "x-api-key")}
    client = get_client(headers=headers)
    try:
        return JSONResponse(await client.threads.get("x"))
    except Exception as e:
        return PlainTextResponse(repr(e), 500)


async def smuggle(request: Request):
    client = get_client()
    path = request.query_params["path"]
    try:
        return JSONResponse(await client.http.get(path, headers={"x": "1\r\nAuthorization: Bearer ann"} if "header" in request.query_params else None))
    except Exception as e:
        return PlainTextResponse(repr(e), 500)


async def socket(websocket):
    await websocket.accept()
    try:
        while True:
            text = await websocket.receive_text()
            if text == "crash":
                raise RuntimeError("secret of the socket")
            await websocket.send_text(text)
    finally:
        left.append("socket")


@asynccontextmanager
async def lifespan(app):
    yield


app = Starlette(lifespan=lifespan, routes=[
    Route("/" + route.__name__.replace("_", "-"), route, methods=["GET", "POST"])
    for route in (hello, hang, collect, drip, half, garbage, crash, wrong, leave, exit_now, block, forks, count, refuse, flood, late, who_left, api, smuggle)
] + [Route("/split", Split()), Route("/twice", Twice()), WebSocketRoute("/socket", socket)])


@asynccontextmanager
async def failing(app):
    raise RuntimeError("no database")
    yield


broken = Starlette(lifespan=failing)


async def stuck_handler(request: Request, exc: Exception):
    await asyncio.Event().wait()


async def answers_at_once(request: Request, exc: Exception):
    return PlainTextResponse("gone", 410)


async def stuck_answer(request: Request, exc: Exception):
    async def pieces():
        yield b"first"
        await asyncio.Event().wait()

    return StreamingResponse(pieces())


stuck = Starlette(exception_handlers={404: stuck_handler, 409: stuck_answer})


async def around(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-around"] = "yes"
    return response


stuck_within = Starlette(middleware=[Middleware(BaseHTTPMiddleware, dispatch=around)], exception_handlers={404: stuck_handler, 409: stuck_answer, 410: answers_at_once})
