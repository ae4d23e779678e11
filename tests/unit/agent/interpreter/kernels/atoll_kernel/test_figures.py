"""Without matplotlib; with it figures are in the conformance suite and the gallery."""

import pytest

from atoll.agent.interpreter.kernels.atoll_kernel import figures


def test_without_matplotlib_there_are_no_figures() -> None:
    assert figures.forms(object()) is None
    assert figures.open_figures() == []
    figures.prepare()
    figures.show()
    figures.close_all()


def test_it_is_a_backend_and_nothing_else() -> None:
    with pytest.raises(AttributeError):
        _ = figures.Unknown
