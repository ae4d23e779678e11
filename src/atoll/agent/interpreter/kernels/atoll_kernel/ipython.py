"""Running code on the image's IPython: magics, ``!shell``, top-level await, rich display."""

from __future__ import annotations

import builtins
import sys
import warnings
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from . import failures, figures, rich
from .executor import Emit, cancel_all, refuse_input


class _Formatter(DisplayFormatter):
    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        found = rich.special(obj)
        if found is not None:
            return {_ATOLL: found}, {}
        return super().format(obj, include, exclude)


_ATOLL = "application/vnd.atoll.forms"


def _forms(bundle: dict[str, Any]) -> dict[str, Any]:
    return bundle[_ATOLL] if _ATOLL in bundle else rich.of_mime(bundle)


class _Publisher(DisplayPublisher):
    emit: Emit

    def publish(self, data: Any, metadata: Any = None, **options: Any) -> None:
        transient = options.get("transient") or {}
        kind = "update" if options.get("update") else "display"
        self.emit(kind, _forms(data), transient.get("display_id"))

    def clear_output(self, wait: bool = False) -> None:
        self.emit("clear", {}, None)


class _Hook(DisplayHook):
    emit: Emit

    def __call__(self, result: Any = None) -> None:
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        bundle, _ = self.shell.display_formatter.format(result)
        self.update_user_ns(result)
        self.fill_exec_result(result)
        if bundle:
            forms = bundle[_ATOLL] if _ATOLL in bundle else rich.of_value(result, bundle)
            self.emit("result", forms, None)


class _Shell(InteractiveShell):
    raised: BaseException | None = None
    shown: Any = None

    def init_display_formatter(self) -> None:
        self.display_formatter = _Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self.shown = stb

    def showtraceback(self, *args: Any, **options: Any) -> None:
        """Format an exception, also one whose own text cannot be had."""
        error = sys.exc_info()[1]
        self.raised = self.raised or error
        try:
            if error is not None:
                error.__traceback__ = failures.without_ours(error.__traceback__)
                args = ((type(error), error, error.__traceback__), *args[1:])
            super().showtraceback(*args, **options)
        except Exception:
            self.shown = None

    def ask_exit(self) -> None:
        """Take ``exit`` and ``quit`` as what they are in a script."""
        raise SystemExit

    def enable_gui(self, gui: Any = None) -> None:
        """There is no screen."""

    def init_io(self) -> None:
        """Output goes by descriptors of the execution."""

    def init_virtualenv(self) -> None:
        """The interpreter is the image's, or the one of the path."""


class OnIPython:
    """As `executor.Plain`, with IPython.

    Args:
        emit: called with the forms of each result.
    """

    hidden = frozenset({"In", "Out", "get_ipython", "exit", "quit", "open"})

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.banner1 = ""
        config.InteractiveShell.cache_size = 100
        config.InteractiveShell.xmode = "Context"
        _Shell.displayhook_class = _Hook
        _Shell.display_pub_class = _Publisher
        self._shell = shell = _Shell.instance(config=config)
        InteractiveShell._instance = shell
        shell.displayhook.emit = shell.display_pub.emit = emit
        shell.system = shell.system_raw
        shell.shown = shell.raised = None
        warnings.filterwarnings("ignore", message="To exit: use")
        shell.register_magic_function(_matplotlib, "line", "matplotlib")
        builtins.input = refuse_input
        self.namespace = shell.user_ns

    @property
    def count(self) -> int:
        """The number of the execution that ran last."""
        return int(self._shell.execution_count) - 1

    def run(self, code: str) -> BaseException | None:
        """Run *code*; return what it raised, after telling it."""
        shell = self._shell
        shell.shown = shell.raised = None
        cell = shell.transform_cell(code)
        name = shell.compile.get_code_name(cell, cell, shell.execution_count)
        builtins.input = refuse_input
        result = shell.run_cell(code, store_history=True)
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        if error is not None and shell.raised is not None:
            error = shell.raised  # IPython's own trouble with an exception hides it
        if isinstance(error, KeyboardInterrupt):
            self._cancel()
        if error is not None:
            self._emit("error", self._failure(error, name), None)
        return error

    def _failure(self, error: BaseException, name: str) -> dict[str, Any]:
        shown = self._shell.shown
        lines = None
        if isinstance(shown, list) and not isinstance(error, SystemExit):
            lines = "\n".join(str(part) for part in shown).rstrip("\n").split("\n")
        return failures.describe(error, name, lines)

    def _cancel(self) -> None:
        runner = sys.modules.get("IPython.core.async_helpers")
        loop = getattr(runner, "_asyncio_event_loop", None) if runner else None
        if loop is not None and not loop.is_closed():
            cancel_all(loop)


def _matplotlib(line: str) -> None:
    """Take ``%matplotlib inline`` and its like: figures are shown inline whatever it says."""
    import matplotlib  # noqa: F401  (loaded so that its backend can be set)

    figures.prepare()
