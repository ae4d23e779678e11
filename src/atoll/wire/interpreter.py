"""Code contexts, runs of code, and their results on the wire.

A run answers with the frames of a command and one kind more: RESULT, whose bytes are JSON lines,
one object each. `type` says what it is: ``result`` (the value of the last expression), ``display``,
``update`` (of what was displayed under `displayId`), ``clear``, ``error``, or ``late`` (output of
an earlier run that came after its end).
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from atoll.wire.base import Millis, Request, Result

DEFAULT_CODE_TIMEOUT_MS = 60_000


class CreateContextRequest(Request, frozen=True, kw_only=True):
    """A new context.

    Each of `variables` is ``{"json": value}``, ``{"bytes": base64}``, or ``{"parquet": base64}`` for a
    pandas frame.
    """

    language: str = "python"
    cwd: str | None = None
    env_vars: dict[str, str | None] = msgspec.field(default_factory=dict)
    variables: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    timeout_ms: Millis | None = msgspec.field(default=DEFAULT_CODE_TIMEOUT_MS, name="timeout")
    session: str | None = None


class ContextInfo(Result, frozen=True, kw_only=True):
    """A context."""

    id: str
    language: str
    cwd: str
    created_at: datetime
    last_used: datetime


class ContextList(Result, frozen=True, kw_only=True):
    """All contexts of a sandbox."""

    contexts: list[ContextInfo]


class RunCodeRequest(Request, frozen=True, kw_only=True):
    """Code to run in `context`; without one in the default context of `language`."""

    code: str
    context: str | None = None
    language: str | None = None
    env_vars: dict[str, str | None] = msgspec.field(default_factory=dict)
    timeout_ms: Millis | None = msgspec.field(default=DEFAULT_CODE_TIMEOUT_MS, name="timeout")
    session: str | None = None


class Interrupted(Result, frozen=True, kw_only=True):
    """Whether something ran that was interrupted."""

    interrupted: bool


class Variable(Result, frozen=True, kw_only=True):
    """A variable of a context. `shape` is that of an array or frame, or the length of a container."""

    name: str
    type: str
    shape: list[int] | None = None
    preview: str = ""


class VariableList(Result, frozen=True, kw_only=True):
    """The variables of a context."""

    variables: list[Variable]


class Chart(Result, frozen=True, kw_only=True):
    """What a figure shows. `type`: line, bar, scatter, pie, histogram, heatmap or unknown."""

    type: str
    title: str = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    layout: dict[str, Any] = msgspec.field(default_factory=dict)
    library: str = ""
    image: str | None = None  # PNG in base64


FORMATS = (
    "text", "html", "png", "jpeg", "svg", "latex", "markdown", "javascript", "json", "chart", "data",
)  # fmt: skip


class CodeResult(Result, frozen=True, kw_only=True):
    """A value in all forms it has; `png` and `jpeg` are base64.

    `truncated` names forms that were left out or cut, with their size in bytes.
    """

    type: str = "result"  # or display, update, clear
    text: str | None = None
    html: str | None = None
    png: str | None = None
    jpeg: str | None = None
    svg: str | None = None
    latex: str | None = None
    markdown: str | None = None
    javascript: str | None = None
    json: Any = None
    chart: Chart | None = None
    data: Any = None
    display_id: str | None = None
    truncated: dict[str, int] = msgspec.field(default_factory=dict)

    def formats(self) -> list[str]:
        """Return the names of the forms it has."""
        return [name for name in FORMATS if getattr(self, name) is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form, without the forms it has not."""
        wire = {name: getattr(self, name) for name in self.formats() if name != "chart"}
        if self.chart is not None:
            wire["chart"] = self.chart.to_dict()
        if self.truncated:
            wire["truncated"] = self.truncated
        return wire


class ExecutionError(Result, frozen=True, kw_only=True):
    """What the code raised."""

    name: str
    message: str = ""
    traceback: list[str] = msgspec.field(default_factory=list)
    line_number: int | None = None

    @property
    def value(self) -> str:
        """The message, by its name in other SDKs."""
        return self.message


class LateOutput(Result, frozen=True, kw_only=True):
    """Output that came after the end of the run it belongs to."""

    name: str  # stdout or stderr
    text: str
    execution_count: int = 0


class ExecutionComplete(Result, frozen=True, kw_only=True):
    """The run ended; everything it did came before this.

    `reason` tells what ended it early: timeout, cancel or interrupt; `restarted`, that the
    interpreter did not listen to that and was replaced, so that all variables are gone.
    """

    execution_count: int = 0
    success: bool = True
    timed_out: bool = False
    cancelled: bool = False
    reason: str | None = None
    restarted: bool = False
    truncated: bool = False
    duration_ms: int = msgspec.field(default=0, name="duration")
    seq: int = 0
    offset: int = 0


class ExecutionLogs(Result, frozen=True, kw_only=True):
    """What was printed, in pieces that end with lines where that is possible."""

    stdout: list[str] = msgspec.field(default_factory=list)
    stderr: list[str] = msgspec.field(default_factory=list)


class ExecutionResult(Result, frozen=True, kw_only=True):
    """How a run of code ended, with what it printed and showed."""

    code: str
    logs: ExecutionLogs
    results: list[CodeResult] = msgspec.field(default_factory=list)
    error: ExecutionError | None = None
    execution_count: int = 0
    late: list[LateOutput] = msgspec.field(default_factory=list)
    truncated: bool = False
    timed_out: bool = False
    restarted: bool = False
    duration_ms: int = msgspec.field(default=0, name="duration")
    context_id: str | None = None
    timestamp: datetime

    @property
    def success(self) -> bool:
        """Whether the code raised nothing."""
        return self.error is None

    @property
    def text(self) -> str | None:
        """The text of the last expression's value, if it had one."""
        found = [one.text for one in self.results if one.type == "result"]
        return found[-1] if found else None

    @property
    def outputs(self) -> list[dict[str, str]]:
        """The flat view: ``{type: text | image | html, content}``."""
        printed = "".join(self.logs.stdout)
        flat = [{"type": "text", "content": printed}] if printed else []
        return flat + [view for one in self.results for view in _flat(one)]

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form."""
        wire: dict[str, Any] = msgspec.to_builtins(self)
        wire["results"] = [one.to_dict() for one in self.results]
        return wire | {"success": self.success, "outputs": self.outputs}


def _flat(one: CodeResult) -> Iterator[dict[str, str]]:
    image = one.png or one.jpeg
    if image:
        yield {"type": "image", "content": image}
    elif one.html:
        yield {"type": "html", "content": one.html}
    elif one.text:
        yield {"type": "text", "content": one.text}


class _Kind(msgspec.Struct):
    type: str


Shown = CodeResult | ExecutionError | LateOutput


def read_line(line: bytes) -> Shown | None:
    """Return what one line of RESULT says; None when it is of no kind known here.

    Raises:
        msgspec.MsgspecError: it is not what its type says; user code can write anything there.
    """
    kind = msgspec.json.decode(line, type=_Kind).type
    if kind in {"result", "display", "update", "clear"}:
        found = msgspec.json.decode(line, type=CodeResult)
        if found.chart and found.png:
            chart = msgspec.structs.replace(found.chart, image=found.png)
            found = msgspec.structs.replace(found, chart=chart)
        return found
    if kind == "error":
        return msgspec.json.decode(line, type=ExecutionError)
    return msgspec.json.decode(line, type=LateOutput) if kind == "late" else None
