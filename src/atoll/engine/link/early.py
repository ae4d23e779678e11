"""An agent that answers before it has read all it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager

from atoll.engine.link.link import LinkError, SilenceError


@contextmanager
def answers() -> Iterator[None]:
    """Go on where the agent takes no more: its answer, which comes next, says why."""
    try:
        yield
    except SilenceError:
        raise
    except LinkError:
        pass
