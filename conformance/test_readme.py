"""The example for Python in README.md, as a reader pastes it into a file."""
import asyncio
import re
import sys
from pathlib import Path

from helpers import BASE_URL

README = Path(__file__).parent.parent / "README.md"


async def test_python(tmp_path):
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    for here, there in (("http://127.0.0.1:2024", BASE_URL), ('"chat"', '"agent"'), ("What is 6 times 7?", "say 3")):
        assert here in example
        example = example.replace(here, there)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(sys.executable, script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert lines[0].startswith("metadata ") and "run_id" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["messages"] * len(lines[1:])
    assert all(word in out.decode() for word in ("'w0'", "' w1'", "' w2'"))
