"""An application with exception handlers: they answer errors of the API too. `bare` has no middleware, `app` has one that shows who sent a request."""
from langgraph_sdk import Auth
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

auth = Auth()


@auth.authenticate
async def authenticate(authorization: str | None):
    if not authorization:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    return {"identity": authorization.removeprefix("Bearer ")}


@auth.on.threads.create
async def create(ctx, value):
    if status := value.get("metadata", {}).get("refuse"):
        raise Auth.exceptions.HTTPException(status_code=status, detail="told to", headers={"x-told": "yes"})


def who(request):
    return getattr(request.scope.get("user"), "identity", "nobody")


class Shows(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        before = who(request)
        response = await call_next(request)
        response.headers["x-who"] = f"{before}, {who(request)}"
        return response


async def fails(request):
    raise HTTPException(418, "of a route")


async def refused(request, exc):
    return JSONResponse({"problem": exc.detail}, status_code=exc.status_code, headers={"x-told": (exc.headers or {}).get("x-told", "no")})


async def missing(request, exc):
    return JSONResponse({"missing": request.url.path}, status_code=404)


app = Starlette(routes=[Route("/app/fails", fails)], middleware=[Middleware(Shows)], exception_handlers={HTTPException: refused})
bare = Starlette(routes=[Route("/app/fails", fails)], exception_handlers={HTTPException: refused, 404: missing})
