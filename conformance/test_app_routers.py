"""Routers that FastAPI includes, beside the API; serve `app/routers.json`."""
import httpx
import pytest
from helpers import BASE_URL
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

pytestmark = pytest.mark.deployment("app/routers.json")


@pytest.fixture
async def http():
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=30) as session:
        yield session


async def test_routes(http):
    assert (await http.post("/v1/mine/items/3")).json() == 3
    assert (await http.post("/v1/mine/items/x")).status_code == 422
    assert (await http.get("/v1/mine/inner/a/b")).json() == {"name": "a/b"}
    assert (await http.get("/mine/inner/a")).status_code == 404
    assert (await http.post("/assistants/count", json={})).json() == 1
    assert (await http.post("/runs/wait", json={"assistant_id": "echo", "input": {"n": 1}})).status_code == 200


@pytest.mark.parametrize("path", ["/v1/mine/socket/7", "/own/7"])
async def test_sockets(path):
    async with connect(BASE_URL.replace("http", "ws", 1) + path) as ws:
        await ws.send("hello")
        assert await ws.recv() == "7 hello"
        with pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "over")


async def test_compressed_as_the_middleware_says(http):
    r = await http.get("/v1/mine/long", headers={"accept-encoding": "gzip"})
    assert r.text == "x" * 3000 and r.headers["content-encoding"] == "gzip"
    r = await http.get("/v1/mine/long", headers={"accept-encoding": "identity"})
    assert r.text == "x" * 3000 and "content-encoding" not in r.headers
