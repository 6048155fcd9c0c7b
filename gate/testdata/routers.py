"""A FastAPI application as most are written: routers in files of their own, and compressed answers."""
from fastapi import APIRouter, FastAPI, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.middleware.gzip import GZipMiddleware

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
    await ws.close(4001)


router.include_router(inner)
app = FastAPI()
app.add_middleware(GZipMiddleware, minimum_size=1000)
app.include_router(router, prefix="/v1")


class Odd(APIRouter):
    """Decides itself what it answers, so only it knows its routes."""

    def matches(self, scope):
        from starlette.routing import Match
        return (Match.FULL if scope["path"].startswith("/odd") else Match.NONE), {}


odd = FastAPI()
odd.include_router(router, prefix="/v1")
strange = Odd()
strange.websocket("/odd/socket")(socket)
odd.include_router(strange)
