"""Users as handlers, routes and graphs see them: what authenticate returned, by attribute and by key."""
from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

LECTURE = (
    "Expected a BaseUser instance with required property: identity (str). Optional properties are: is_authenticated (bool, defaults to True) "
    "and display_name (str, defaults to identity). Got {} instead"
)


class NoUser(Exception):
    """authenticate returned something that is no user."""


class Fields(dict):
    """A dictionary whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(f"'User' object has no attribute {name!r}") from None
        return Fields(value) if type(value) is dict else value


class User:
    """A user who was authenticated."""

    def __init__(self, fields: dict[str, Any], permissions: list[str], original: Any = None) -> None:
        self._fields, self._permissions, self._original = fields, permissions, original

    @property
    def identity(self) -> str:
        return self._fields["identity"]

    @property
    def is_authenticated(self) -> bool:
        return self._fields["is_authenticated"]

    @property
    def display_name(self) -> str:
        return self._fields["display_name"]

    @property
    def permissions(self) -> list[str]:
        return self._permissions

    def dict(self) -> dict[str, Any]:
        return dict(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._original is not None:
            return getattr(self._original, name)
        return getattr(Fields(self._fields), name)

    def __getitem__(self, key: str) -> Any:
        if key in self._fields:
            return self._fields[key]
        if self._original is not None and hasattr(self._original, key):
            return getattr(self._original, key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __iter__(self):
        return iter(self._fields)

    def keys(self):
        return self._fields.keys()

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __eq__(self, other: object) -> bool:
        return isinstance(other, User) and self._fields == other._fields and self._permissions == other._permissions

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"User({self._fields!r})"


def returned(result: Any) -> User:
    """The user that authenticate has returned. Raises NoUser."""
    permissions = None
    if isinstance(result, tuple):
        if len(result) != 2:
            raise NoUser(LECTURE.format(type(result)))
        permissions, result = result
    if isinstance(result, str):
        fields: dict[str, Any] = {"identity": result, "is_authenticated": True, "display_name": result}
        return _checked(User(fields, _listed(permissions)), result)
    if isinstance(result, Mapping):
        if "identity" not in result:
            raise NoUser(LECTURE.format(type(result)))
        given = dict(result)
        identity = given["identity"]
        first = {
            "identity": identity,
            "is_authenticated": given.get("is_authenticated", True),
            "display_name": given.get("display_name", identity),
        }
        fields = {**first, **{k: v for k, v in given.items() if k not in first}}
        return _checked(User(fields, _listed(permissions if permissions is not None else given.get("permissions"))), result)
    try:
        identity = result.identity
    except Exception:
        raise NoUser(LECTURE.format(type(result))) from None
    fields = {
        "identity": identity,
        "is_authenticated": getattr(result, "is_authenticated", True),
        "display_name": getattr(result, "display_name", identity),
    }
    return _checked(User(fields, _listed(permissions if permissions is not None else getattr(result, "permissions", None)), result), result)


def _checked(user: User, result: Any) -> User:
    if user.identity is None or user.identity == "" or not isinstance(user.identity, (str, int, uuid.UUID)) or isinstance(user.identity, bool):
        raise NoUser(LECTURE.format(type(result)) + ": its identity is empty or no text")
    if not _is_text(str(user.identity)):
        raise NoUser(LECTURE.format(type(result)) + ": its identity has half of a surrogate pair, and would be the same as any other one that differs only there")
    return user


def _listed(permissions: Any) -> list[str]:
    if permissions is None:
        return []
    if isinstance(permissions, str):
        return [permissions]
    try:
        return [str(p) for p in permissions]
    except TypeError:
        raise NoUser(f"permissions are a {type(permissions).__name__}; return a list of strings") from None


def stored(fields: dict[str, Any], permissions: list[str]) -> Any:
    """The user that the server has kept."""
    if fields.get("kind") == "StudioUser":
        from langgraph_sdk import Auth

        return Auth.types.StudioUser(fields["identity"])
    return User(fields, permissions)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
