"""The application of http.app around the API: its routes first, then the API; its middleware around both."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from . import api as apis
from . import codec

# Paths that the application cannot take.
RESERVED = ("/ok", "/metrics", "/docs", "/openapi.json")
# Middleware for which the API need not pass through this process: the server does the same itself. Routes of the application are compressed as they say.
NATIVE = ("starlette.middleware.cors.CORSMiddleware", "starlette.middleware.gzip.GZipMiddleware")


def _name(cls: Any) -> str:
    return f"{getattr(cls, '__module__', '')}.{getattr(cls, '__qualname__', cls)}"


class Application:
    """What http.app names. Raises TypeError for something else."""

    def __init__(self, app: Any, options: dict[str, Any], api: apis.Api, store: Any) -> None:
        try:
            from starlette.applications import Starlette
        except ImportError:
            raise TypeError("http.app needs starlette or fastapi; install it: pip install starlette") from None
        if not isinstance(app, Starlette):
            raise TypeError(f"it is a {_name(type(app))}; http.app has to name a Starlette or FastAPI application, without anything around it")
        self._app, self._api, self._store = app, api, store
        self._prefix: str = options.get("prefix") or ""
        self._guarded = bool(options.get("guarded"))
        self._cors: dict[str, Any] | None = None
        self.wraps: list[str] = []
        kept = []
        for middleware in app.user_middleware:
            name = _name(middleware.cls)
            if name == NATIVE[0]:
                self._cors = _cors(middleware)
            elif name == NATIVE[1]:
                kept.append(middleware)
            else:
                kept.append(middleware)
                self.wraps.append(getattr(middleware.cls, "__name__", name))
                if kw := middleware.kwargs.get("dispatch"):
                    self.wraps[-1] = getattr(kw, "__name__", self.wraps[-1])
        self.handles = api.raises = _handles(app)
        api.identify = lambda scope, form: self._identify(scope, self.user_of(form))
        _handlers(app)
        self._router = app.router
        everything = app.user_middleware
        app.user_middleware, app.router = kept, self._inner
        try:
            stack = app.build_middleware_stack()
        finally:
            app.user_middleware, app.router = everything, self._router
        app.middleware_stack = stack

    def describe(self) -> dict[str, Any]:
        """What the server has to know: which requests are the application's, and its description."""
        out: dict[str, Any] = {"wraps": self.wraps, "handles": self.handles, "routes": _routes(self._router.routes), "slashes": bool(getattr(self._router, "redirect_slashes", False))}
        if self._cors is not None:
            out["cors"] = self._cors
        if callable(openapi := getattr(self._app, "openapi", None)):
            out["openapi"] = codec.dumps(openapi()).decode()
        return out

    async def __call__(self, scope, receive, send) -> None:
        apis.current.set(scope)
        if self._store is not None:
            self._store.provide()
        head = scope.get("understudy")
        if head is not None and (user := head.get("user")) is not None:
            self._identify(scope, user)
        await self._app(scope, receive, send)

    def _identify(self, scope: dict[str, Any], user: Any) -> None:
        from starlette.authentication import AuthCredentials

        scope["user"], scope["auth"] = user, AuthCredentials(list(user.permissions))

    # --- within the middleware -----------------------------------------------------------------

    async def _inner(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        if (raised := scope["understudy"].get("raised")) is not None:
            raise apis.http_error(raised)
        path = self._path(scope)
        if scope["type"] == "http" and path in RESERVED:
            await self._api(scope, receive, send)
            return
        if scope["type"] == "websocket" and path is None:
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
            return
        mine = self._match(scope) if path is not None else 0
        if scope["type"] == "http" and (mine == 0 or mine == 1 and scope["understudy"].get("api")):
            await self._api(scope, receive, send)
            return
        if self._guarded and mine and not scope["understudy"].get("trusted") and not await self._authenticate(scope, receive, send):
            return
        await self._router(scope, receive, send)

    def _path(self, scope: dict[str, Any]) -> str | None:
        """The path below the mount prefix; None for one that is not below it, where the application has nothing."""
        path, prefix = scope["path"], scope.get("root_path", "")
        if not prefix:
            return path
        return path[len(prefix):] if path.startswith(prefix + "/") else None

    def _match(self, scope: dict[str, Any]) -> int:
        """2: the application has a route; 1: one for other methods; 0: none."""
        best = 0
        for route in self._router.routes:
            match, _ = route.matches(scope)
            best = max(best, match.value)
            if best == 2:
                return 2
        if best == 0 and scope["type"] == "http" and getattr(self._router, "redirect_slashes", False) and scope["path"] != "/":
            path = scope["path"]
            other = {**scope, "path": path.rstrip("/") if path.endswith("/") else path + "/"}
            if any(route.matches(other)[0].value for route in self._router.routes):
                return 1
        return best

    async def _authenticate(self, scope, receive, send) -> bool:
        """Asks the server who sent the request, as it is now; answers it if nobody is let in."""
        if scope.get("user") is not None and scope["understudy"].get("user") is not None:
            return True
        request = dict(scope["understudy"])
        for drop in ("user", "api"):
            request.pop(drop, None)
        request["headers"] = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in scope["headers"]]
        answer = await self._api.call("authenticate", {"request": request, "passed": scope.get("understudy.stream", 0)})
        if (actor := answer.get("actor")) is not None:
            user = self.user_of(actor)
            self._identify(scope, user)
            return True
        refusal = answer["refusal"]
        headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in refusal.get("headers", ())]
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return False
        if refusal.get("plain"):
            body, kind = refusal["plain"].encode(), b"text/plain; charset=utf-8"
        else:
            body, kind = codec.dumps({"detail": refusal.get("detail")}), b"application/json"
        headers += [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": refusal["status"], "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return False

    user_of: Callable[[dict[str, Any]], Any]


def _cors(middleware: Any) -> dict[str, Any]:
    """The options of Starlette's CORSMiddleware as http.cors has them."""
    given = {**dict(zip(("allow_origins", "allow_methods", "allow_headers", "allow_credentials", "allow_origin_regex", "expose_headers", "max_age"), middleware.args)), **middleware.kwargs}
    out = {"allow_origins": list(given.get("allow_origins", ())), "allow_methods": list(given.get("allow_methods", ("GET",))), "allow_headers": list(given.get("allow_headers", ())),
           "allow_credentials": bool(given.get("allow_credentials", False)), "expose_headers": list(given.get("expose_headers", ())), "max_age": int(given.get("max_age", 600))}
    if regex := given.get("allow_origin_regex"):
        out["allow_origin_regex"] = getattr(regex, "pattern", regex)
    return out


def _handles(app: Any) -> bool:
    """Whether the application has handlers of its own for errors that the API answers."""
    from starlette.exceptions import HTTPException

    default: Any = None
    try:
        from fastapi.exception_handlers import http_exception_handler as default
    except ImportError:
        pass
    return any(
        isinstance(key, int) and 400 <= key < 500 or key is HTTPException and handler is not default for key, handler in app.exception_handlers.items()
    )


def _handlers(app: Any) -> None:
    """The answers to exceptions that the application does not handle itself."""
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse, Response

    async def http(request, exc):
        headers = getattr(exc, "headers", None)
        if exc.status_code in (204, 304):
            return Response(status_code=exc.status_code, headers=headers)
        return JSONResponse({"detail": exc.detail}, status_code=exc.status_code, headers=headers)

    async def value(request, exc):
        # It may be a fault of the application as well.
        logging.getLogger("http.app").error("%s %s was answered with 400 because of an exception", request.method, request.url.path, exc_info=exc)
        return JSONResponse({"detail": str(exc)}, status_code=400)

    app.exception_handlers.setdefault(HTTPException, http)
    app.exception_handlers.setdefault(ValueError, value)


def _routes(routes: Any) -> list[dict[str, Any]]:
    """Routes for the server. FastAPI keeps those of a router that was included behind one route, which makes them when it is asked."""
    out = []
    for route in routes:
        try:
            out += _included(route) if hasattr(route, "effective_candidates") else [_route(route)]
        except Exception:  # another version of FastAPI
            logging.getLogger("http.app").warning("the routes of a router are not known: all requests go through Python", exc_info=True)
            out.append({"kind": "any"})
    return out


def _included(router: Any) -> list[dict[str, Any]]:
    from fastapi.routing import APIRouter

    if type(router.original_router).matches is not APIRouter.matches:
        return [{"kind": "any"}]
    out = []
    for candidate in [*router.effective_candidates(), *router.effective_low_priority_routes()]:
        if hasattr(candidate, "effective_candidates"):
            out += _included(candidate)
            continue
        made = candidate.starlette_route
        if made is None:
            made, known = candidate, _route(candidate.original_route)
            if known["kind"] != "route":
                out.append({"kind": "any"})
                continue
            out.append({"kind": "route", "pattern": made.path_regex.pattern, "methods": sorted(made.methods), "path": made.path})
        else:
            out.append(_route(made))
    return out


def _route(route: Any) -> dict[str, Any]:
    """A route for the server: kind, pattern of the path, and methods. One that it cannot know is asked here: kind any."""
    from starlette import routing

    regex = getattr(route, "path_regex", None)
    if regex is None or not isinstance(route, (routing.Route, routing.Mount, routing.WebSocketRoute)):
        return {"kind": "any"}
    if type(route).matches not in (routing.Route.matches, routing.Mount.matches, routing.WebSocketRoute.matches) and not type(route).__module__.startswith("fastapi."):
        return {"kind": "any"}
    kind = "mount" if isinstance(route, routing.Mount) else "socket" if isinstance(route, routing.WebSocketRoute) else "route"
    methods = sorted(route.methods) if getattr(route, "methods", None) else []
    # Names of groups in Go are as in Python; both have the same syntax for what converters of Starlette use.
    return {"kind": kind, "pattern": regex.pattern, "methods": methods, "path": getattr(route, "path", "")}
