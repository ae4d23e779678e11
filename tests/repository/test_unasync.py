"""The generator of the blocking SDK: exact on code, careful with text, strict when it compares."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def unasync() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "tools" / "unasync.py"
    spec = importlib.util.spec_from_file_location("unasync", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("async def f():\n    return await g()\n", "def f():\n    return g()\n"),
        ("async with a as b, c:\n    pass\n", "with a as b, c:\n    pass\n"),
        ("x = [c async for c in s]\n", "x = [c for c in s]\n"),
        ("await anext(it)\n", "next(it)\n"),
        ("from a._async.b import _aio\n", "from a._sync.b import _io\n"),
        ('"""An async iterator; use `async with`, then `await x`."""\n',
         '"""An iterator; use `with`, then `x`."""\n'),
        ('x = "asynchronous await_this"\n', 'x = "asynchronous await_this"\n'),
        ("# an (async) iterable of awaited things\n", "# an iterable of awaited things\n"),
        ('s = """a\nasync with b\n"""\nawait x\n', 's = """a\nwith b\n"""\nx\n'),
    ],
)  # fmt: skip
def test_code_is_turned_and_other_text_is_left(unasync: ModuleType, source: str, made: str) -> None:
    assert unasync.convert(source) == made


def test_nothing_asynchronous_is_left_in_what_is_generated(unasync: ModuleType) -> None:
    for name, text in unasync.generate().items():
        kinds = {type(node).__name__ for node in ast.walk(ast.parse(text))}
        assert not {kind for kind in kinds if kind.startswith("Async") or kind == "Await"}, name
        assert "asyncio" not in text.replace("tools/unasync", ""), name


def test_what_is_committed_is_what_is_generated(unasync: ModuleType) -> None:
    assert unasync.check(unasync.generate()) == []


def test_missing_changed_and_leftover_files_are_all_found(
    unasync: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unasync, "TARGET", tmp_path)
    (tmp_path / "same.py").write_text("x")
    (tmp_path / "changed.py").write_text("y")
    (tmp_path / "leftover.py").write_text("z")
    problems = unasync.check({"same.py": "x", "changed.py": "x", "missing.py": "x"})
    assert [problem.partition(":")[0] for problem in problems] == [
        "leftover.py",
        "missing.py",
        "changed.py",
    ]
