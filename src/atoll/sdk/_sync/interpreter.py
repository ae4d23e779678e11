"""The code interpreter: contexts that keep their state, and runs of code with rich results."""

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, UnsetType

from atoll.errors import SandboxError
from atoll.sdk import _io, _arguments, _code, _sse
from atoll.sdk._sync.closable import ClosableStream
from atoll.sdk._sync.operation import Running
from atoll.sdk._sync.target import Address, Target
from atoll.wire import ids, ops
from atoll.wire.base import Duration, Empty
from atoll.wire.code_stream import CodeEvent, CodeReader, Collector
from atoll.wire.interpreter import (
    DEFAULT_CODE_TIMEOUT_MS,
    CodeResult,
    ContextInfo,
    CreateContextRequest,
    ExecutionComplete,
    ExecutionError,
    ExecutionResult,
    RunCodeRequest,
    Variable,
)
from atoll.wire.process import Failed, Stderr, Stdout

OnText = Callable[[str], object]
OnResult = Callable[[CodeResult], object]
OnError = Callable[[ExecutionError], object]


class CodeStream(ClosableStream[CodeEvent]):
    """An iterator of the events of one run of code.

    The run starts with the first event and ends with `ExecutionComplete`, or with `Failed` when the
    interpreter ended under it. Closing the stream early interrupts the code.
    """

    _runs = True

    def __init__(self, address: Address, request: RunCodeRequest) -> None:
        running: Running[CodeEvent] = Running(address, ops.RUN_CODE, request, CodeReader())
        super().__init__(running.run())

    def sse(self) -> _io.Stream[bytes]:
        """Yield the events as the body of a ``text/event-stream`` answer, for 0.12 clients."""
        with closing(self._events) as events:
            try:
                for event in events:
                    if data := _code.sse(event):
                        yield data
            except SandboxError as error:
                yield _sse.encode_error(error)


class CodeContext:
    """State that lives on from one piece of code to the next, until it is deleted or the sandbox sleeps."""

    def __init__(
        self, interpreter: "Interpreter", info: ContextInfo, timeout_ms: int | None
    ) -> None:
        self._interpreter = interpreter
        self._timeout_ms = timeout_ms
        self.info = info

    def __repr__(self) -> str:
        return f"<CodeContext {self.id} ({self.language})>"

    @property
    def id(self) -> str:
        """The context's id."""
        return self.info.id

    @property
    def language(self) -> str:
        """python, javascript or typescript."""
        return self.info.language

    @property
    def cwd(self) -> str:
        """The directory it was started in."""
        return self.info.cwd

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return self.info.created_at

    @property
    def last_used(self) -> datetime:
        """When code was run in it last, as of the call that returned this object."""
        return self.info.last_used

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form."""
        return self.info.to_dict()

    def run_code(
        self,
        code: str,
        *,
        env_vars: Mapping[str, str | None] | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> ExecutionResult:
        """Run code in this context; see `Interpreter.run_code`."""
        return self._interpreter.run_code(
            code,
            context=self,
            env_vars=env_vars,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
        )

    def run_code_stream(
        self,
        code: str,
        *,
        env_vars: Mapping[str, str | None] | None = None,
        timeout: Duration | UnsetType | None = UNSET,
    ) -> CodeStream:
        """Return the events of a run in this context; see `Interpreter.run_code_stream`."""
        return self._interpreter.run_code_stream(
            code, context=self, env_vars=env_vars, timeout=timeout
        )

    def interrupt(self) -> bool:
        """Interrupt what runs, as Ctrl-C does; return whether something did.

        Code that does not listen for a second loses its interpreter with all variables; its own
        result says so.
        """
        return self._interpreter.interrupt_code(self)

    def variables(self) -> list[Variable]:
        """Return the variables, with type, shape and a preview, once what runs has ended."""
        return self._interpreter.list_code_variables(self)

    def delete(self) -> None:
        """End the context with everything its code has started."""
        self._interpreter.delete_code_context(self)


class Interpreter(Target):
    """Code contexts of a sandbox or session."""

    def create_code_context(
        self,
        *,
        language: str = "python",
        cwd: str | None = None,
        env_vars: Mapping[str, str | None] | None = None,
        variables: Mapping[str, Any] | None = None,
        timeout: Duration | UnsetType | None = UNSET,
    ) -> CodeContext:
        """Make a context.

        Args:
            language: python, javascript or typescript (python3, js, node, ts).
            cwd: where it starts; the session's directory, else ``/workspace``.
            env_vars: variables of its environment; None unsets one.
            variables: values its code finds: JSON values, bytes, and in Python pandas frames.
            timeout: default time limit of its runs: seconds or "30s"; None: no limit.

        Raises:
            InvalidLanguageError: there are no contexts of this language.
            PythonNotAvailableError: the image has no Python.
            JavascriptNotAvailableError: the image has no Node, or none for TypeScript.
            FileNotFoundError: `cwd` does not exist.
        """
        default = DEFAULT_CODE_TIMEOUT_MS
        limit = default if timeout is UNSET else _arguments.time_limit(timeout)
        request = CreateContextRequest(
            language=language,
            cwd=cwd,
            env_vars=_arguments.mapping("env_vars", env_vars),
            variables=_code.variable_forms(variables),
            timeout_ms=limit,
            session=self._session,
        )
        return CodeContext(self, self._call(ops.CREATE_CONTEXT, request), limit)

    def list_code_contexts(self) -> list[CodeContext]:
        """Return all contexts; a sandbox that sleeps has none and is not woken."""
        found = self._call(ops.LIST_CONTEXTS, Empty())
        return [CodeContext(self, info, DEFAULT_CODE_TIMEOUT_MS) for info in found.contexts]

    def delete_code_context(self, context: CodeContext | str) -> None:
        """End a context with everything its code has started.

        Raises:
            ContextNotFoundError: there is none of this id.
        """
        self._call(ops.DELETE_CONTEXT, Empty(), more={"context": _id(context)})

    def interrupt_code(self, context: CodeContext | str) -> bool:
        """Interrupt what runs in a context; return whether something did."""
        more = {"context": _id(context)}
        return (self._call(ops.INTERRUPT_CONTEXT, Empty(), more=more)).interrupted

    def list_code_variables(self, context: CodeContext | str) -> list[Variable]:
        """Return the variables of a context."""
        more = {"context": _id(context)}
        return (self._call(ops.CONTEXT_VARIABLES, Empty(), more=more)).variables

    def run_code(
        self,
        code: str,
        *,
        context: CodeContext | str | None = None,
        language: str | None = None,
        env_vars: Mapping[str, str | None] | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_error: OnError | None = None,
    ) -> ExecutionResult:
        """Run code and return what it printed, showed and raised.

        What the code raises is part of the result (`error`), not an exception here.

        Args:
            code: of any length; several statements, top-level ``await`` included.
            context: where to run it; None: the default context of the language.
            language: of that default context; python when not given.
            env_vars: environment variables of this run only.
            timeout: seconds (or "30s", "5m", …) until it is interrupted; None: no limit. Default: 60 s,
                or that of the context.
            on_stdout: called with each piece of printed text.
            on_stderr: called with each piece of text printed to standard error.
            on_result: called with each result.
            on_error: called with the error of the code.

        Raises:
            TimeoutError: the time is over; `.result` has what there is, and `.context` tells
                whether the interpreter was replaced (``restarted``).
            KernelDiedError: the interpreter ended under the code, or since the last run.
            ContextNotFoundError: the context was deleted, or ended with the sandbox's sleep.
        """
        _arguments.callbacks(
            on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error
        )
        stream = self.run_code_stream(
            code, context=context, language=language, env_vars=env_vars, timeout=timeout
        )
        collector = Collector()
        end, failed = None, None
        with stream:
            for event in stream:
                collector.add(event)
                match event:
                    case Stdout() | Stderr() if event.text:
                        handler = on_stdout if isinstance(event, Stdout) else on_stderr
                        _io.call(handler, event.text)
                    case CodeResult():
                        _io.call(on_result, event)
                    case ExecutionError():
                        _io.call(on_error, event)
                    case ExecutionComplete():
                        end = event
                    case Failed():
                        failed = event
                    case _:
                        pass
        id = None if context is None else _id(context)
        return _code.check(collector.result(code, id, datetime.now(UTC)), end, failed)

    def run_code_stream(
        self,
        code: str,
        *,
        context: CodeContext | str | None = None,
        language: str | None = None,
        env_vars: Mapping[str, str | None] | None = None,
        timeout: Duration | UnsetType | None = UNSET,
    ) -> CodeStream:
        """Return the events of a run, which starts with the first of them. Options as for `run_code`."""
        default = DEFAULT_CODE_TIMEOUT_MS
        limit = context._timeout_ms if isinstance(context, CodeContext) else default  # noqa: SLF001
        request = _code.run_request(
            code,
            None if context is None else _id(context),
            language,
            env_vars,
            timeout,
            self._session,
            limit,
        )
        return CodeStream(self._address, request)


def _id(context: CodeContext | str) -> str:
    return ids.check_session(context.id if isinstance(context, CodeContext) else context)
