"""Running code where the image has no IPython: statements, last value, top-level await, ``!`` and ``%pip``."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import linecache
import subprocess
import sys
import types
from typing import Any, Callable

from . import failures, rich

Emit = Callable[..., None]


class StdinNotImplementedError(NotImplementedError):
    """Code asked for input; nobody is there to type it."""


def refuse_input(*_: Any, **__: Any) -> Any:
    """Stand in for `input` and `getpass`."""
    raise StdinNotImplementedError(
        "input() cannot be answered in a code context; pass values with variables= or in the code"
    )


class Plain:
    """Runs code in one namespace.

    Args:
        emit: called with the forms of each result.
    """

    hidden = frozenset({"In", "Out", "get_ipython", "display", "exit", "quit"})

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.count = 0
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace = module.__dict__
        self.namespace.update(display=self.display, __builtins__=builtins)
        builtins.input = refuse_input
        self._loop: asyncio.AbstractEventLoop | None = None
        self._displays = 0

    def display(self, *values: Any, display_id: Any = None, **_: Any) -> Any:
        """Show values; with a *display_id* they can be updated."""
        if display_id is True:
            self._displays += 1
            display_id = f"display-{self._displays}"
        for value in values:
            self._emit("display", rich.forms(value), display_id)
        return display_id

    def run(self, code: str) -> BaseException | None:
        """Run *code*; return what it raised, after telling it."""
        self.count += 1
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        try:
            value = self._run(code, name)
            if value is not None:
                builtins._ = value  # type: ignore[attr-defined]
                self._emit("result", rich.forms(value), None)
        except BaseException as error:
            self._emit("error", failures.describe(error, name), None)
            return error
        return None

    def _run(self, code: str, name: str) -> Any:
        tree = ast.parse(_shell_lines(code), name)
        last = tree.body[-1] if tree.body else None
        hidden = code.rstrip().endswith(";") and not code.rstrip().split("\n")[-1].startswith("#")
        expression = None
        if isinstance(last, ast.Expr) and not hidden:
            expression = ast.Expression(last.value)
            tree.body.pop()
        self._evaluate(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if expression is None:
            return None
        return self._evaluate(compile(expression, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))

    def _evaluate(self, code: types.CodeType) -> Any:
        self.namespace["_atoll_system"] = _system
        value = eval(code, self.namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop = self._loop or asyncio.new_event_loop()
            value = self._complete(self._loop, value)
        return value

    def _complete(self, loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt:
            cancel_all(loop)
            raise


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """End what an interrupted execution left on the loop: the next one would go on with it."""
    tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


def _shell_lines(code: str) -> str:
    """Return *code* with lines that begin with ``!`` or ``%pip`` as calls."""
    try:
        ast.parse(code)
        return code
    except SyntaxError:
        return "\n".join(map(_shell_line, code.split("\n")))


def _shell_line(line: str) -> str:
    stripped = line.lstrip()
    indent = line[: len(line) - len(stripped)]
    if stripped.startswith("!"):
        return f"{indent}_atoll_system({stripped[1:]!r})"
    if stripped.startswith(("%pip ", "%sx ")):
        return f"{indent}_atoll_system({_pip(stripped[1:])!r})"
    return line


def _pip(command: str) -> str:
    return f'"{sys.executable}" -m {command}' if command.startswith("pip") else command[3:]


def _system(command: str) -> None:
    subprocess.call(command, shell=True)
