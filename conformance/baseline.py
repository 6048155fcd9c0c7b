"""What is known to stay apart from LangGraph Server, as a pytest plugin: `-p baseline`.

Each line of baseline.txt (and of the file that CONFORMANCE_BASELINE names, for graphs that are not Python's) is the id of a test; the comment above it is the reason. Such a test has to fail. When it passes, the run
fails: the line goes. An id that no test has fails the run too.
"""
from __future__ import annotations

import os
import pathlib

FILE = pathlib.Path(__file__).with_name("baseline.txt")
MORE_BASELINE = "CONFORMANCE_BASELINE"


def read_baseline() -> dict[str, str]:
    """Reasons by test id."""
    more = os.environ.get(MORE_BASELINE)
    return read_file(FILE) | (read_file(pathlib.Path(more)) if more else {})


def read_file(file: pathlib.Path) -> dict[str, str]:
    found: dict[str, str] = {}
    reason: list[str] = []
    in_comment = False
    for line in file.read_text().splitlines():
        line = line.strip()
        if line.startswith("#"):
            reason = [*reason, line[1:].strip()] if in_comment else [line[1:].strip()]
            in_comment = True
            continue
        in_comment = False
        if not line:
            reason = []
        elif not reason:
            raise ValueError(f"{file.name}: {line} has no reason; write it in a comment above")
        else:
            found[line] = " ".join(reason)
    return found


try:
    import pytest
except ImportError:  # conformance/run reads the list without pytest
    pass
else:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(config, items):
        known = {test: reason for test, reason in read_baseline().items() if not test.startswith(("js/", "browser/"))}
        for item in items:
            reason = known.pop(item.nodeid, None)
            if reason:
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
        whole = not config.option.keyword and config.args == [str(config.invocation_params.dir)]
        if known and whole:
            raise pytest.UsageError(f"{FILE.name} names tests that are not there: {', '.join(known)}")
