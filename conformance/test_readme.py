"""The examples for Python in README.md and docs/event-streaming.md, as a reader pastes them into a file."""
import asyncio
import re
import sys
from pathlib import Path

from helpers import BASE_URL

ROOT = Path(__file__).parent.parent


async def run(page, tmp_path):
    """What the example of a page prints."""
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    for here, there in (("http://127.0.0.1:2024", BASE_URL), ('"chat"', '"agent"'), ("What is 6 times 7?", "say 3")):
        assert here in example
        example = example.replace(here, there)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(sys.executable, script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_readme(tmp_path):
    out = await run("README.md", tmp_path)
    lines = out.splitlines()
    assert lines[0].startswith("metadata ") and "run_id" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["messages"] * len(lines[1:])
    assert all(word in out for word in ("'w0'", "' w1'", "' w2'"))


async def test_event_streaming(tmp_path):
    assert await run("docs/event-streaming.md", tmp_path) == "w0 w1 w2\n"
