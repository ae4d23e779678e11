"""Why an operation lost its agent, told in terms of the sandbox. Pure.

An exit code is never invented: where the outcome is not known, this is the answer.
"""

from atoll.engine.store.record import CONTAINER_ENDED, Record
from atoll.errors import (
    OperationInterruptedError,
    SandboxDestroyedError,
    SandboxError,
    StaleHandleError,
)
from atoll.wire.sandbox import State

_DETAIL = 200
"""Characters that are told of what an agent said instead of an answer."""


def known(
    id: str,
    record: Record | None,
    transition: str | None,
    generation: int | None,
    detail: str,
    *,
    frozen: bool = False,
) -> SandboxError | None:
    """Return the reason that record and transition tell, or None.

    Args:
        id: of the sandbox.
        record: as it is now.
        transition: the one under way: start, stop or destroy.
        generation: of the start the operation ran in.
        detail: what the link said.
        frozen: whether the link was ended because the sandbox was being frozen.
    """
    context = {"sandbox": id, "detail": detail}
    if transition == "destroy" or record is None or record.state is State.DESTROYED:
        return SandboxDestroyedError(f"sandbox {id!r} was destroyed", context=context)
    if frozen:
        return OperationInterruptedError(
            f"sandbox {id!r} was frozen",
            context=context | {"reason": "frozen"},
            suggestion="the next call wakes it; what was under way may not have been done",
        )
    if transition == "stop" or record.state is State.STOPPED:
        if _died(record):
            return unknown(id, detail, gone=True)
        return OperationInterruptedError(
            f"sandbox {id!r} was stopped", context=context | {"reason": "stopped"}
        )
    if generation is not None and record.generation != generation:
        return StaleHandleError(f"sandbox {id!r} was started again", context=context)
    return None


def _died(record: Record) -> bool:
    """Whether it stops, or has, without having been told to: that is recorded before it begins."""
    return record.state is State.RUNNING or record.reason == CONTAINER_ENDED


def unknown(id: str, detail: str, *, gone: bool) -> SandboxError:
    """Return the error for a container that ended by itself (*gone*), or an agent that failed."""
    what = "its container ended" if gone else "its agent broke the connection"
    return OperationInterruptedError(
        f"the operation was lost in sandbox {id!r}: {what}",
        context={"sandbox": id, "detail": detail, "reason": "container" if gone else "agent"},
        suggestion="its outcome is not known; the next call starts the sandbox if it must",
    )


def improper(detail: str) -> OperationInterruptedError:
    """Return the error for an answer of an agent that is none: its fault, and not the engine's."""
    return OperationInterruptedError(
        "the operation was lost: the agent of the sandbox gave no proper answer",
        context={"detail": detail[:_DETAIL], "reason": "agent"},
        suggestion="its outcome is not known; destroy the sandbox if this happens again",
    )
