"""Mounts by the unmodified client of the OpenAI Agents SDK: what fails is its own error."""

from pathlib import Path

import pytest
from agents.sandbox.errors import MountConfigError
from agents.sandbox.session import SandboxSession

SECRET = {"accessKeyId": "a", "secretAccessKey": "b"}


async def test_a_mount_that_fails_is_the_clients_own_error(box: SandboxSession) -> None:
    inner = box._inner
    with pytest.raises(MountConfigError) as caught:
        await inner.mount_bucket(  # type: ignore[attr-defined]
            bucket="b", mount_path=Path("data"),
            options={"endpoint": "https://s3.invalid", "readOnly": True, "credentials": SECRET},
        )  # fmt: skip
    assert caught.value.context["http_status"] == 502
    assert str(caught.value.context["reason"]).startswith("mount failed: ")


async def test_a_mount_that_is_wrong_is_refused(box: SandboxSession) -> None:
    inner = box._inner
    with pytest.raises(MountConfigError) as caught:
        await inner.mount_bucket(  # type: ignore[attr-defined]
            bucket="b", mount_path=Path("data"), options={"endpoint": 7}
        )
    assert caught.value.context["http_status"] == 400


async def test_an_unmount_that_fails_is_the_clients_own_error(box: SandboxSession) -> None:
    with pytest.raises(MountConfigError) as caught:
        await box._inner.unmount_bucket(Path("data"))  # type: ignore[attr-defined]
    assert caught.value.context["http_status"] == 502
