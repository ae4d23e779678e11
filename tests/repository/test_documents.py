"""Runs every example of README.md and docs/ against a real engine.

A page is run from top to bottom. Python blocks with a top-level ``await`` share one namespace, in
which `env` and `sandbox` are ready; other Python blocks and shell blocks run as programs. A
```text block after an example is its exact output. A comment ``<!-- not run: why -->`` before a
block leaves it out.
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import atoll

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>.+?) -->\s*)?^```(?P<kind>\w+)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Example(NamedTuple):
    line: int
    kind: str
    text: str
    output: str | None


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block["kind"] not in {"python", "sh"} or block["why"]:
            continue
        adjacent = following and not text[block.end() : following.start()].strip()
        expected = (
            following["text"] if following and adjacent and following["kind"] == "text" else None
        )
        yield Example(
            text.count("\n", 0, block.start()) + 1, block["kind"], block["text"], expected
        )


def awaits(text: str) -> bool:
    try:
        ast.parse(text)
        compile(text, "example", "exec")
    except SyntaxError:
        return True
    return False


async def run_inline(example: Example, page: Path, names: dict[str, Any]) -> str:
    lines = "\n" * example.line + example.text
    code = compile(lines, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    out = StringIO()
    with redirect_stdout(out):
        value = eval(code, names)
        if inspect.isawaitable(value):
            await value
    return out.getvalue()


def run_program(example: Example, folder: Path, environ: dict[str, str]) -> str:
    argv = [sys.executable, "-c"] if example.kind == "python" else ["bash", "-euc"]
    done = subprocess.run(
        [*argv, example.text], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"line {example.line}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_every_example_of_the_page_runs_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(examples(page))
    if not found:
        pytest.skip("a page without examples")
    bin_dir = str(Path(sys.executable).parent)
    environ = os.environ | {
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
        "ATOLL_STATE_DIR": str(tmp_path / "state"),
    }
    monkeypatch.setenv("ATOLL_STATE_DIR", environ["ATOLL_STATE_DIR"])
    async with atoll.local() as env:
        await env.version()
        names: dict[str, Any] = {
            "atoll": atoll,
            "env": env,
            "sandbox": atoll.get_sandbox(env.Sandbox, "docs"),
        }
        for example in found:
            if example.kind == "python" and awaits(example.text):
                output = await run_inline(example, page, names)
            else:
                folder = ROOT if page.stem == "README" else tmp_path
                output = await asyncio.to_thread(run_program, example, folder, environ)
            if example.output is not None:
                assert output == example.output, f"line {example.line}"
