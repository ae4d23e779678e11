import pytest

from atoll.engine.link import early
from atoll.engine.link.link import LinkError, SilenceError


def test_an_agent_that_hung_up_is_asked_why() -> None:
    with early.answers():
        raise LinkError("hung up")


def test_an_agent_that_listens_to_nothing_is_not() -> None:
    with pytest.raises(SilenceError), early.answers():
        raise SilenceError("took nothing")


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="other"), early.answers():
        raise ValueError("other")
