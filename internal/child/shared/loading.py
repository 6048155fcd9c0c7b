"""Imports modules that langgraph.json names: files by their path, others by their name."""
from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from typing import Any


class Loader:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files: dict[str, Any] = {}

    def module(self, path: str) -> Any:
        """The module at a path relative to the directory, or of a dotted name."""
        if not path.endswith(".py") and "/" not in path:
            return importlib.import_module(path)
        full = os.path.realpath(os.path.join(self._directory, path))
        known = self._files.get(full)
        if isinstance(known, BaseException):
            raise known
        if known is None:
            try:
                known = self._files[full] = _import_file(full)
            except BaseException as exc:
                self._files[full] = exc
                raise
        return known


def _import_file(full: str) -> Any:
    if not os.path.isfile(full):
        raise FileNotFoundError(f"No such file: {full}")
    # Under the name by which other modules import it, so that there is one of it and its classes can be found again when
    # checkpoints name them.
    for entry in sys.path:
        base = os.path.realpath(entry or os.getcwd())
        inside = os.path.relpath(full, base)
        if inside.startswith(".."):
            continue
        parts = inside.removesuffix(".py").split(os.sep)
        if parts[-1] == "__init__":
            parts.pop()
        if not parts or not all(p.isidentifier() for p in parts):
            continue
        name = ".".join(parts)
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, AttributeError, ValueError):
            continue
        if spec is not None and spec.origin and os.path.realpath(spec.origin) == full:
            return importlib.import_module(name)
    name = f"{os.path.basename(full).removesuffix('.py')}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, full)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
