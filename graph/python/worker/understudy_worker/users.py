"""The user in `configurable.langgraph_auth_user`, as graphs read it."""
from __future__ import annotations

from typing import Any, Iterator


class User:
    """Reads as an object and as a mapping: `user.identity` and `user["identity"]`, with every field that authentication returned."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]):
        identity = fields.get("identity")
        self._fields = {"identity": identity, "is_authenticated": True, "display_name": identity, **fields}

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
        return self._fields.get("permissions") or []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_fields":
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"the user has no {name!r}") from None

    def __getitem__(self, key: str) -> Any:
        return self.permissions if key == "permissions" else self._fields[key]

    def __contains__(self, key: object) -> bool:
        return key == "permissions" or key in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def keys(self):
        return self._fields.keys()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def dict(self) -> dict[str, Any]:
        return dict(self._fields)

    model_dump = dict

    def __eq__(self, other: object) -> bool:
        return isinstance(other, User) and other._fields == self._fields

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"User(identity={self.identity!r})"

    def __reduce__(self):
        return User, (self._fields,)


def of(given: Any) -> Any:
    """The user of a configuration; None when there is none."""
    return User(given) if isinstance(given, dict) and given.get("identity") is not None else None
