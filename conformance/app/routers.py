"""A FastAPI application as most are written: routers of their own that are included, with a socket, and compressed answers."""
from fastapi import APIRouter, FastAPI, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match

inner = APIRouter(prefix="/inner")
router = APIRouter(prefix="/mine")


@inner.get("/{name:path}")
async def anything(name: str):
    return {"name": name}


@router.post("/items/{n}")
async def items(n: int):
    return n


@router.get("/long")
async def long():
    return PlainTextResponse("x" * 3000)


@router.websocket("/socket/{n}")
async def socket(ws: WebSocket, n: int):
    await ws.accept()
    await ws.send_text(f"{n} {await ws.receive_text()}")
    await ws.close(4001, "over")


class Own(APIRouter):
    """A router that decides itself what it answers."""

    def matches(self, scope):
        return (Match.FULL if scope["path"].startswith("/own/") else Match.NONE), {}


own = Own()
own.websocket("/own/{n}")(socket)
router.include_router(inner)
app = FastAPI()
app.add_middleware(GZipMiddleware, minimum_size=1000)
app.include_router(router, prefix="/v1")
app.include_router(own)
