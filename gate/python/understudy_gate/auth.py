"""Handlers of langgraph_sdk.Auth: who sends a request, and what they may do."""
from __future__ import annotations

import contextlib
import inspect
import logging
import math
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from . import codec, threads, users
from .scopes import query_of, scope_of

# What authenticate may ask for by name.
NAMES = ("authorization", "headers", "path", "method", "query_params", "path_params", "scope", "request")
# The questions that handlers can answer, for the warning about those without one.
ACTIONS = {
    "threads": ("create", "read", "update", "delete", "search", "create_run"),
    "assistants": ("create", "read", "update", "delete", "search"),
    "crons": ("create", "read", "update", "delete", "search"),
    "store": ("put", "get", "delete", "search", "list_namespaces"),
}
# Members of values that handlers get as UUIDs.
IDS = ("thread_id", "assistant_id", "run_id", "cron_id")
# Objects that authenticate returned, for the handlers that are asked later in the same request.
MOST_OBJECTS = 10_000


class Refused(Exception):
    """The answer to a request that may not pass."""

    def __init__(self, status: int, detail: Any = None, plain: str = "", headers: Any = None, close: bool = False, log: str = "", fix: str = "") -> None:
        self.status, self.detail, self.plain, self.headers, self.close, self.log, self.fix = status, detail, plain, headers, close, log, fix

    def form(self) -> dict[str, Any]:
        out: dict[str, Any] = {"status": self.status}
        if self.plain:
            out["plain"] = self.plain
        else:
            out["detail"] = self.detail
        if self.headers:
            pairs = self.headers.items() if hasattr(self.headers, "items") else self.headers
            out["headers"] = [[str(k), str(v)] for k, v in pairs]
        if self.close:
            out["close"] = True
        if self.log:
            out["log"] = self.log
        if self.fix:
            out["fix"] = self.fix
        return out


def broken(what: str, exc: BaseException | None = None, fix: str = "") -> Refused:
    log = what + ("\n" + "".join(traceback.format_exception(exc))[-16384:] if exc is not None else "")
    return Refused(500, plain="Internal Server Error", close=True, log=log, fix=fix)


class Handlers:
    """The handlers of one Auth object. Raises TypeError or ValueError for one that cannot serve."""

    def __init__(self, auth: Any, limit: float) -> None:
        from langgraph_sdk import Auth

        if not isinstance(auth, Auth):
            raise TypeError(f"it is a {type(auth).__module__}.{type(auth).__qualname__}; auth.path has to name a langgraph_sdk.Auth: auth = Auth()")
        self._auth, self._types = auth, Auth.types
        self._refusal = Auth.exceptions.HTTPException
        handler = auth._authenticate_handler
        if handler is None:
            raise ValueError("it has no authenticate handler; write one: @auth.authenticate async def authenticate(authorization: str | None): ...")
        self._authenticate = _Call(handler)
        self._limit = limit  # seconds for a handler where several are asked; the server waits no longer for one that is asked alone
        self._objects: OrderedDict[int, users.User] = OrderedDict()
        self._number = 0
        self._left_out: set[Any] = set()  # fields that were warned of

    def gaps(self) -> list[str]:
        """The questions that no handler answers: they are allowed."""
        out = []
        for resource, actions in ACTIONS.items():
            missing = [a for a in actions if self._handler(resource, a) is None]
            if len(missing) == len(actions):
                out.append(f"{resource}.*")
            else:
                out += [f"{resource}.{a}" for a in missing]
        return out

    def names(self) -> dict[str, Any]:
        """Its handlers as users write them."""
        out: dict[str, Any] = {"@auth.authenticate": self._auth._authenticate_handler}
        for key, found in self._auth._handlers.items():
            for handler in found:
                out["@auth.on." + ".".join(part for part in key if part != "*") if key != ("*", "*") else "@auth.on"] = handler
        if self._auth._global_handlers:
            out["@auth.on"] = self._auth._global_handlers[-1]
        return out

    # --- who -------------------------------------------------------------------------------

    async def authenticate(self, request: dict[str, Any]) -> tuple[users.User, dict[str, Any]]:
        """The user, and its form for the server."""
        try:
            user = users.returned(await self._authenticate(request))
        except users.NoUser as exc:
            raise Refused(400, str(exc), log=f"authenticate returned no user: {exc}", fix="return a str, or a dict or an object with identity; refuse credentials by Auth.exceptions.HTTPException(status_code=401)") from None
        except Refused:
            raise
        except Exception as exc:
            if self._is_refusal(exc) and (exc.status_code in (401, 403) or not isinstance(exc, self._refusal)):
                raise Refused(exc.status_code, _text(exc.detail), headers=exc.headers) from None
            if _named(exc, "AuthenticationError", "starlette."):
                raise Refused(403, str(exc)) from None
            status = "raise it with status_code 401 or 403: authenticate refuses by no other" if isinstance(exc, self._refusal) else ""
            raise broken(f"authenticate failed: {type(exc).__name__}", exc, status) from None
        fields, left = self._encoded(user.dict())
        form = {
            "identity": str(user.identity), "display_name": str(user.display_name), "authenticated": bool(user.is_authenticated),
            "permissions": user.permissions, "user": fields.decode(),
        }
        if user._original is not None or left:
            self._number += 1
            self._objects[self._number] = user
            while len(self._objects) > MOST_OBJECTS:
                self._objects.popitem(last=False)
            form["ref"] = self._number
        return user, form

    def _encoded(self, fields: dict[str, Any]) -> tuple[bytes, bool]:
        """The fields of a user as runs keep them, and whether some are left out because they have no form in JSON. Handlers of this request see those all the same."""
        try:
            return codec.dumps(fields), False
        except Exception:
            pass
        kept = {}
        for name, value in fields.items():
            try:
                codec.dumps({name: value})
                kept[name] = value
            except Exception:
                if name not in self._left_out and len(self._left_out) < 100:
                    self._left_out.add(name)
                    logging.getLogger("auth").warning(
                        "authenticate returns a user whose field %r is a %s, which has no form in JSON: handlers see it, graphs and webhooks do not", name, type(value).__name__
                    )
        return codec.dumps(kept), True

    def actor(self, form: dict[str, Any]) -> Any:
        """The user that the server has kept."""
        known = self._objects.get(form.get("ref", 0))
        return known if known is not None else users.stored(form["user"], form["permissions"])

    def _is_refusal(self, exc: BaseException) -> bool:
        return isinstance(exc, self._refusal) or _named(exc, "HTTPException", "starlette.", "fastapi.")

    # --- what ------------------------------------------------------------------------------

    async def admit(self, answer: dict[str, Any], request: dict[str, Any], questions: list[dict[str, Any]]) -> None:
        """Answers who sends a request, and questions about that user, as if each were asked alone: up to one that is refused or takes too long, or whose filter the
        server has to examine first."""
        try:
            with threads.within(self._limit):
                _, form = await self.authenticate(request)
            answer["actor"] = form
            decisions = answer["decisions"] = []
            for question in questions:
                user = self.actor({**form, "user": codec.loads(form["user"].encode())})
                _fill(question, form)
                with threads.within(self._limit):
                    decision = await self.decide(user, question)
                decisions.append(decision)
                if not _certain(decisions[-1].get("filter")):
                    return
        except threads.Slow:
            answer["slow"] = True

    def _handler(self, resource: str, action: str) -> Callable | None:
        handlers = self._auth._handlers
        for key in ((resource, action), (resource, "*"), ("*", action), ("*", "*")):
            if found := handlers.get(key):
                return found[-1]
        return self._auth._global_handlers[-1] if self._auth._global_handlers else None

    async def decide(self, user: Any, question: dict[str, Any]) -> dict[str, Any]:
        """The filter and the members of the value that the handler has changed."""
        resource, action = question["resource"], question["action"]
        handler = self._handler(resource, action)
        if handler is None:
            return {}
        value = question["value"]
        if not isinstance(value, dict):
            value = {} if value is None else {"value": value}
        before = {k: codec.dumps(v) for k, v in value.items()}
        restore = _enrich(value, resource, action)
        context = self._types.AuthContext(permissions=list(user.permissions), user=user, resource=resource, action=action)
        try:
            result = handler(ctx=context, value=value)
            if inspect.isawaitable(result):
                result = await result
        except Refused:
            raise
        except AssertionError as exc:
            raise Refused(403, str(exc)) from None
        except Exception as exc:
            if self._is_refusal(exc):
                raise Refused(exc.status_code, _text(exc.detail), headers=exc.headers, close=exc.status_code >= 500) from None
            raise broken(f"the handler of {resource}.{action} failed: {type(exc).__name__}", exc) from None
        restore()
        answer: dict[str, Any] = {}
        if result is False:
            raise Refused(403, "Forbidden")
        if isinstance(result, dict):
            if not _finite(result):  # JSON would have null, which selects what has no value there
                raise broken(f"the filter of {resource}.{action} has a number that is not finite", ValueError(repr(result)), "return a filter without NaN and infinity")
            answer["filter"] = _encoded(result, f"the filter of {resource}.{action}")
        elif result is not None and result is not True:
            text = f"Auth handler returned invalid result. Expected filter dict, None, or boolean. Got {type(result)} instead."
            raise Refused(500, text, close=True, log=f"the handler of {resource}.{action} returned a {type(result).__name__}", fix="return None or True to allow, False to refuse, or a filter, which is a dict")
        changed = {}
        for key, member in value.items():
            text = _encoded(member, f"what the handler of {resource}.{action} wrote into {key!r}")
            if before.get(key) != text.encode():
                changed[str(key)] = text
        removed = [k for k in before if k not in value]
        if changed:
            answer["changed"] = changed
        if removed:
            answer["removed"] = removed
        return answer


def _fill(question: dict[str, Any], form: dict[str, Any]) -> None:
    """Writes who asks a question into its value, where the server would have if it had known that."""
    if path := question.get("user_at"):
        place = _at(question["value"], path)
        place["langgraph_auth_user"] = codec.loads(form["user"].encode())
        place["langgraph_auth_user_id"] = form["identity"]
        place["langgraph_auth_permissions"] = list(form["permissions"])
    if path := question.get("identity_at"):
        _at(question["value"], path[:-1])[path[-1]] = form["identity"]


def _at(value: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for key in path:
        value = value[key]
    return value


def _named(exc: BaseException, name: str, *modules: str) -> bool:
    """Whether an exception is of a class of a package that may not be installed."""
    return any(c.__name__ == name and c.__module__.startswith(modules) for c in type(exc).__mro__)


def _text(detail: Any) -> Any:
    return detail if detail is None or isinstance(detail, str) else str(detail)


def _certain(text: str | None) -> bool:
    """Whether a filter, as JSON, is certainly one that the server can apply: it compares texts."""
    if text is None:
        return True
    fields = codec.loads(text.encode())
    return "\\" not in text and all(isinstance(value, str) and not key.startswith("$") for key, value in fields.items())


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _encoded(value: Any, what: str) -> str:
    try:
        return codec.dumps(value).decode()
    except Exception as exc:
        raise broken(f"{what} has no form in JSON", exc, "use texts, numbers, booleans, None, lists and dicts there") from None


def _enrich(value: dict[str, Any], resource: str, action: str) -> Callable[[], None]:
    """Gives a value the types that handlers know: UUIDs, tuples, and a user with attributes. What it returns makes the user a part of the value again."""
    if resource == "store":
        for key in ("namespace", "suffix"):
            if isinstance(value.get(key), list):
                value[key] = tuple(value[key])
        return _nothing
    if resource == "crons" and action in ("update", "delete"):
        return _nothing  # LangGraph Server has the id as text there
    for key in IDS:
        if isinstance(text := value.get(key), str):
            with contextlib.suppress(ValueError):
                value[key] = uuid.UUID(text)
    if action == "update" and "action" in value:  # a cancel
        with contextlib.suppress(KeyError, TypeError, ValueError):
            value["metadata"]["run_ids"] = [uuid.UUID(run) for run in value["metadata"]["run_ids"]]
    if action == "create_run":
        with contextlib.suppress(KeyError, TypeError):
            configurable = value["kwargs"]["config"]["configurable"]
            fields = configurable["langgraph_auth_user"]
            if isinstance(fields, dict) and "identity" in fields:
                user = configurable["langgraph_auth_user"] = users.stored(fields, fields.get("permissions") or [])

                def restore() -> None:
                    if configurable.get("langgraph_auth_user") is user:
                        configurable["langgraph_auth_user"] = fields

                return restore
    return _nothing


def _nothing() -> None:
    pass


class _Call:
    """authenticate with the parameters that it names."""

    def __init__(self, handler: Callable) -> None:
        self._handler = handler
        self._names: list[str] = []
        self._depends: dict[str, Any] = {}
        parameters = inspect.signature(handler).parameters
        for name, parameter in parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if (dependency := _dependency(handler, name, parameter)) is not None:
                self._depends[name] = dependency
            elif name in NAMES:
                self._names.append(name)
            elif parameter.default is parameter.empty:
                raise ValueError(f"authenticate has a parameter {name!r} that nothing can be given for; it may have {', '.join(NAMES)}, or give it a default")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"authenticate has a positional-only parameter {name!r}; parameters are given by name")
        self._needs_starlette = "request" in self._names or bool(self._depends)
        if self._needs_starlette:
            try:
                import starlette.requests  # noqa: F401
            except ImportError:
                raise ValueError("authenticate asks for the request, which needs starlette; install it: pip install starlette") from None

    async def __call__(self, request: dict[str, Any]) -> Any:
        scope = scope_of(request)
        if self._needs_starlette and request["websocket"]:
            raise Refused(403, "Forbidden", log="authenticate asks for the request, which a WebSocket does not have; ask for headers and query_params instead", fix="replace the parameter request of authenticate by headers and query_params")
        kwargs: dict[str, Any] = {}
        for name in self._names:
            kwargs[name] = _argument(name, scope, request)
        if not self._depends:
            return await threads.call(self._handler, **kwargs)
        async with contextlib.AsyncExitStack() as stack:
            for name, dependency in self._depends.items():
                kwargs[name] = await _solved(dependency, scope, stack)
            return await threads.call(self._handler, **kwargs)


def _argument(name: str, scope: dict[str, Any], request: dict[str, Any]) -> Any:
    if name == "headers":
        return dict(scope["headers"])
    if name == "authorization":
        found = dict(scope["headers"]).get(b"authorization")
        return found.decode("latin-1") if found is not None else None
    if name == "query_params":
        return query_of(scope)
    if name == "method":
        return request["method"]
    if name == "path":
        return scope["path"]
    if name == "path_params":
        return {}
    if name == "scope":
        return scope
    from starlette.requests import Request

    async def receive() -> dict[str, Any]:
        raise RuntimeError("authenticate cannot read the body of a request")

    return Request(scope, receive)


def _dependency(handler: Callable, name: str, parameter: inspect.Parameter) -> Any:
    """The function of a Depends of FastAPI; None: the parameter is another one."""
    import sys

    fastapi = sys.modules.get("fastapi.params")
    if fastapi is None:
        return None
    found = [parameter.default]
    try:
        import typing

        hint = typing.get_type_hints(handler, include_extras=True).get(name)
        found += getattr(hint, "__metadata__", ())
    except Exception:
        pass
    for item in found:
        if isinstance(item, fastapi.Depends):
            return item.dependency or hint
    return None


async def _solved(dependency: Callable, scope: dict[str, Any], stack: contextlib.AsyncExitStack) -> Any:
    """What a dependency of FastAPI returns for a request, with its own dependencies."""
    from fastapi.dependencies.utils import get_dependant, solve_dependencies
    from fastapi.exceptions import RequestValidationError
    from starlette.requests import Request

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {**scope, "fastapi_inner_astack": stack, "fastapi_function_astack": stack, "fastapi_middleware_astack": stack}

    async def target(_value=__import__("fastapi").Depends(dependency)):
        return _value

    dependant = get_dependant(path="/", call=target)
    wanted = inspect.signature(solve_dependencies).parameters
    kwargs: dict[str, Any] = {"request": Request(scope, receive), "dependant": dependant}
    if "async_exit_stack" in wanted:
        kwargs["async_exit_stack"] = stack
    if "embed_body_fields" in wanted:
        kwargs["embed_body_fields"] = False
    solved = await solve_dependencies(**kwargs)
    errors = solved.errors if hasattr(solved, "errors") else solved[1]
    if errors:
        raise RequestValidationError(errors)
    values = solved.values if hasattr(solved, "values") and not isinstance(solved, tuple) else solved[0]
    return await target(**values)
