"""(verb, exit code, log) of an OCI runtime → error or None. Pure.

The exit code alone decides whether something failed; the runtime's own JSON log, which it writes
to a file we name, only explains it. Text printed by the container is never looked at.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from atoll.errors import ContainerUnavailableError, SandboxError

_ERRORS = ("error", "fatal", "panic")

_SUGGESTIONS = (
    ("cgroup", "check that the engine may write to its cgroup hierarchies"),
    ("seccomp", "this kernel or runtime lacks seccomp filters; see `atoll doctor`"),
    ("not a directory", "a system path of the image or sandbox was replaced by something else"),
    ("no space left", "the disk that holds the state directory or the sandbox is full"),
    ("user namespace", "user namespaces are switched off on this host; see `atoll doctor`"),
    ("operation not permitted", "the engine lacks a privilege on this host; see `atoll doctor`"),
)


def verdict(
    program: str,
    verb: str,
    code: int,
    log: str,
    *,
    stderr: str = "",
    private: Mapping[str, str] | None = None,
) -> SandboxError | None:
    """Return why *verb* failed, or None when it did not.

    Args:
        program: runc or crun, for the message.
        verb: run, pause, …
        code: exit code; negative for a signal.
        log: content of the runtime's JSON log; lines that are not JSON are skipped.
        stderr: used when the log explains nothing (a program that could not even start).
        private: paths of the host → what callers are told instead.
    """
    if code == 0:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"failed with {code}"
    reason = without(_last_error(log.splitlines()) or stderr.strip()[-2_000:], private or {})
    return ContainerUnavailableError(
        f"{program} {verb} {how}" + (f": {reason}" if reason else ""),
        context={"reason": "runtime", "runtime": program, "verb": verb, "exit_code": code},
        suggestion=_suggestion(reason),
    )


def without(text: str, private: Mapping[str, str]) -> str:
    """Return *text* with each path of *private* replaced, the longest first."""
    for path in sorted(private, key=len, reverse=True):
        text = text.replace(path, private[path])
    return text


def _last_error(lines: Iterable[str]) -> str:
    """The last message is the outermost: runtimes wrap causes into it."""
    messages = [_text(entry["msg"]) for entry in map(_entry, lines) if _is_error(entry)]
    return messages[-1] if messages else ""


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _is_error(entry: dict[str, Any]) -> bool:
    told = entry.get("msg")
    return bool(told) and isinstance(told, str) and entry.get("level") in _ERRORS


def _text(told: str) -> str:
    """Return *told* without lone surrogates: JSON can spell them, an answer cannot be sent with."""
    return told.encode(errors="replace").decode()


def _suggestion(reason: str) -> str | None:
    lowered = reason.lower()
    return next((text for word, text in _SUGGESTIONS if word in lowered), None)
