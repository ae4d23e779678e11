import errno
from pathlib import Path

import pytest

from atoll.errors import (
    ContainerUnavailableError,
    FilesystemError,
    NoSpaceError,
    ValidationFailedError,
)
from atoll.storage import refusals


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", ".a", "a b", "a" * 129, "a\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValidationFailedError):
        refusals.check_id(name)


def test_names_the_engine_makes_are_accepted() -> None:
    refusals.check_id("8f8ea174-72ff2214c698")


def test_a_full_host_is_an_error_to_try_again_later() -> None:
    error = refusals.no_capacity(Path("/srv"))
    assert error.retryable
    assert error.context["reason"] == "capacity"


def test_the_kernels_errors_are_mapped_and_ours_are_left() -> None:
    assert isinstance(refusals.typed(OSError(errno.ENOSPC, "full"), Path("/srv")), NoSpaceError)
    ours = FilesystemError("read-only")
    assert refusals.typed(ours, Path("/srv")) is ours


def test_a_store_that_shut_itself_is_an_error_to_try_again_later() -> None:
    error = refusals.typed(OSError(errno.EROFS, "read-only", "/srv/layers"), Path("/srv"))
    assert isinstance(error, ContainerUnavailableError)
    assert error.retryable
    assert "/srv" not in str(error)
