"""The executor for images without IPython, in this process."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from atoll.agent.interpreter.kernels.atoll_kernel.executor import Plain

Told = list[tuple[str, dict[str, Any], Any]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def plain(told: Told, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plain]:
    import builtins

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(builtins, "input", input)
    monkeypatch.setattr(builtins, "_", None, raising=False)
    made = Plain(lambda *one: told.append(one))
    yield made
    if made._loop:
        made._loop.close()


def test_the_last_expression_is_the_result_and_a_semicolon_hides_it(
    plain: Plain, told: Told
) -> None:
    for code in ("x = 1", "x + 1", "x + 2;", "x\n# a comment;", ""):
        assert plain.run(code) is None
    assert [forms["text"] for _, forms, _ in told] == ["2", "1"]


def test_errors_are_told_with_their_line(plain: Plain, told: Told) -> None:
    error = plain.run("def f():\n    raise KeyError('k')\nf()")
    assert isinstance(error, KeyError)
    _, forms, _ = told[0]
    assert (forms["name"], forms["lineNumber"]) == ("KeyError", 2)
    assert "executor.py" not in "\n".join(forms["traceback"])
    assert isinstance(plain.run("x ="), SyntaxError)
    assert isinstance(plain.run("input()"), NotImplementedError)


def test_await_works_at_the_top(plain: Plain, told: Told) -> None:
    assert plain.run("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 5)") is None
    assert told[-1][1]["text"] == "5"


def test_shell_and_pip_lines_are_commands(plain: Plain, capfd: pytest.CaptureFixture[str]) -> None:
    assert plain.run("x = 1\n!echo $((1 + 1))\n%pip --version") is None
    out = capfd.readouterr().out
    assert out.startswith("2\n")
    assert "pip" in out


def test_values_are_displayed_with_ids(plain: Plain, told: Told) -> None:
    plain.run("h = display(1, display_id=True)\ndisplay(2)")
    assert [(kind, forms["text"], id) for kind, forms, id in told] == [
        ("display", "1", "display-1"),
        ("display", "2", None),
    ]
