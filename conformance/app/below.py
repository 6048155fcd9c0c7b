"""An application and a graph that use the API of their own server, which is below a prefix."""
from typing import Any

from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph
from langgraph_sdk import get_client
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    seen: Any


async def use() -> list:
    """Calls the API in the ways that clients do: for a thread, a run that is awaited, and a stream."""
    client = get_client()
    thread = await client.threads.create(metadata={"made": "inside"})
    out = await client.runs.wait(thread["thread_id"], "echo", input={"n": 1})
    events = [part.event async for part in client.runs.stream(None, "echo", input={"n": 1}, stream_mode="values")]
    return [sorted(out), events[0], (await client.threads.get(thread["thread_id"]))["metadata"]["made"]]


async def node(state: State):
    return {"seen": await use()}


_b = StateGraph(State)
_b.add_node("node", node)
_b.add_edge(START, "node")
_b.add_edge("node", END)
inside = _b.compile()


async def through(request):
    store = get_store()
    await store.aput(("below",), "k", {"v": 1})
    return JSONResponse([await use(), (await store.aget(("below",), "k")).value])


class Seen(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        response = await call_next(request)
        response.headers["x-seen"] = request.url.path
        return response

app = Starlette(routes=[Route("/below/through", through)], middleware=[Middleware(Seen)])
