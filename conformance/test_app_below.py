"""Calls from inside of a server whose API is below a prefix; serve `app/below.json`."""
import httpx
import pytest
from helpers import BASE_URL

pytestmark = pytest.mark.deployment("app/below.json")
USED = ["metadata", "inside"]
PREFIX = "/api/v9"


@pytest.fixture
async def http():
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=30) as session:
        yield session


async def test_a_route_uses_the_api_and_the_store(http):
    used, item = (await http.get(PREFIX + "/below/through")).json()
    assert item == {"v": 1} and used[1:] == USED


async def test_a_graph_uses_the_api(http):
    assert (await http.post(PREFIX + "/runs/wait", json={"assistant_id": "inside", "input": {}})).json()["seen"][1:] == USED


async def test_nothing_is_beside_the_prefix(http):
    for path in ("/below/through", "/assistants/search", "/info", "/api/v9x/below/through"):
        assert (await http.get(path)).status_code == 404, path
    assert (await http.get(PREFIX + "/below/through")).headers["x-seen"] == PREFIX + "/below/through"
    r = await http.get(PREFIX)
    assert (r.status_code, r.headers["location"].removeprefix(BASE_URL)) == (307, PREFIX + "/")
