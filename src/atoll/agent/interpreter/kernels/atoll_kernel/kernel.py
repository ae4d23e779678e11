"""One context: takes messages one after the other and runs code, until the agent hangs up."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from typing import Any

from . import channel, figures, rich, streams, variables
from .channel import Channel, Message
from .plain import plain


class Kernel:
    """Runs what the agent asks for.

    Args:
        link: to the agent.
        executor: `ipython.OnIPython` or `executor.Plain`, made before the fork.
    """

    def __init__(self, link: Channel, executor: Any) -> None:
        self._link, self._executor = link, executor
        self._number = 0
        self._running = self._failed = False
        self._telling = self._postponed = False
        self._started = set(executor.namespace)
        self._sink = streams.moved(os.open("/dev/null", os.O_RDWR))
        for target in (0, 1, 2):
            os.dup2(self._sink, target)
        signal.signal(signal.SIGINT, self._interrupt)

    def serve(self) -> None:
        """Handle messages until the agent hangs up."""
        while message := self._link.receive():
            if message.kind == channel.RUN:
                self._run(message)
            elif message.kind == channel.ASSIGN:
                self._assign(message)
            elif message.kind == channel.DESCRIBE:
                hidden = set(self._executor.hidden) | self._started
                found = variables.describe(self._executor.namespace, hidden)
                self._reply(message.number, {"variables": plain(found)})

    def emit(self, kind: str, forms: dict[str, Any], display_id: Any) -> None:
        """Tell of a result."""
        fields = {"displayId": str(display_id)} if display_id is not None else {}
        execution = streams.current.get(None)
        number = execution.number if execution else self._number
        if kind == "error":
            self._failed = True
            body = json.dumps(plain_error(forms), allow_nan=False).encode()
        else:
            body = rich.encode(forms, type=kind, **fields)
        if threading.current_thread() is threading.main_thread():
            self._tell(number, body)
        else:
            self._link.send(channel.RESULT, number, body)

    def _tell(self, number: int, body: bytes) -> None:
        """Send a result whole: half a message would be the end of this kernel."""
        self._telling = True
        try:
            self._link.send(channel.RESULT, number, body)
        finally:
            self._telling = False
        if self._postponed:
            self._interrupt()

    def _interrupt(self, *_: object) -> None:
        self._postponed = self._running and self._telling
        if self._running and not self._telling:
            raise KeyboardInterrupt

    def _reply(self, number: int, body: dict[str, Any]) -> None:
        self._link.send_json(channel.REPLY, number, body)

    def _assign(self, message: Message) -> None:
        try:
            variables.assign(self._executor.namespace, json.loads(message.body))
            self._reply(message.number, {})
        except Exception as error:
            self._reply(message.number, {"failed": f"{type(error).__name__}: {error}"})

    def _run(self, message: Message) -> None:
        body = json.loads(message.body)
        self._number = message.number
        execution = streams.Execution(message.number, message.fds)
        apply_env(body.get("env") or {})
        before = with_env(body.get("envVars") or {})
        streams.begin(execution)
        try:
            error = self._execute(body["code"])
        finally:
            self._running = False
            apply_env(before)
            streams.end(execution, self._sink)
        status = "error" if error is not None else "ok"
        told = {"status": status, "count": self._executor.count}
        if isinstance(error, KeyboardInterrupt):
            told["interrupted"] = True
        self._link.send_json(channel.DONE, message.number, told)
        if gc.get_count()[2]:
            gc.collect(1)

    def _execute(self, code: str) -> BaseException | None:
        self._running, self._failed = True, False
        try:
            figures.prepare()
            error = self._executor.run(code)
            self._show_figures(keep=error is None)
        except KeyboardInterrupt as interrupt:  # it came between the code and its report
            self._running = False
            if not self._failed:
                from . import failures  # which looks for IPython as soon as it is there

                self.emit("error", failures.describe(interrupt, ""), None)
            return interrupt
        return error if isinstance(error, BaseException) else None

    def _show_figures(self, *, keep: bool) -> None:
        if "matplotlib.pyplot" not in sys.modules:
            return
        try:
            if keep:
                figures.show()
            figures.close_all()
        except Exception:
            sys.excepthook(*sys.exc_info())


def plain_error(forms: dict[str, Any]) -> dict[str, Any]:
    """Return an error as strict JSON."""
    found = plain(forms)
    return found if isinstance(found, dict) else {}


def apply_env(env: dict[str, str | None]) -> None:
    """Set variables; None unsets."""
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def with_env(env: dict[str, str | None]) -> dict[str, str | None]:
    """Set variables and return what `apply_env` needs to undo it."""
    before = {name: os.environ.get(name) for name in env}
    apply_env(env)
    return before
