"""Traces of LangSmith that clients continue, and what the server says of itself."""
import httpx
import pytest
from conftest import BASE_URL

pytestmark = pytest.mark.deployment("graphs/langgraph.json")
TRACE = "20200101T000000000000Z01a226cc-4e22-4555-92bc-bd0e31878c0d"
BAGGAGE = "langsmith-metadata=%7B%22a%22%3A%20%22b%22%7D,langsmith-tags=t1,langsmith-project=p,other=1"


@pytest.mark.parametrize("headers, want", [
    ({"langsmith-trace": TRACE}, {"langsmith-trace": TRACE}),
    ({"LangSmith-Trace": "odd", "baggage": BAGGAGE}, {"langsmith-trace": "odd", "langsmith-metadata": {"a": "b"}, "langsmith-tags": ["t1"], "langsmith-project": "p"}),
    ({"baggage": BAGGAGE}, {}),
    ({"langsmith-project": "p", "langsmith-tags": "t"}, {}),
])
async def test_a_trace_reaches_the_run(http, thread, headers, want):
    r = await http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "echo", "input": {}}, headers=headers)
    assert r.status_code == 200, r.text
    run = (await http.get(f"/threads/{thread}/runs")).json()[0]
    assert {k: v for k, v in run["kwargs"]["config"]["configurable"].items() if "langsmith" in k or k == "baggage"} == want


async def test_what_the_root_says():
    async with httpx.AsyncClient(base_url=BASE_URL) as session:
        assert (await session.get("/")).json() == (await session.get("/ok")).json()
