import msgspec
import pytest

from atoll.wire.mounts import BucketCredentials, BucketMount, MountBucket

JSON = (
    '{"path":"/d","bucket":"b","endpoint":"https://h","provider":"s3","active":true,'
    '"createdAt":"2026-01-01T00:00:00Z","unknown":1}'
)


def test_a_mount_of_a_newer_engine_is_read_and_told_again() -> None:
    found = msgspec.json.decode(JSON, type=BucketMount)
    assert (found.active, found.read_only, found.prefix) == (True, False, "")
    assert msgspec.convert(found.to_dict(), BucketMount) == found


def test_options_have_the_names_of_0_12_on_the_wire() -> None:
    text = '{"path":"/d","bucket":"b","readOnly":true,"s3fsOptions":["ro"],"credentialProxy":false}'
    found = msgspec.json.decode(text, type=MountBucket)
    assert (found.read_only, found.s3fs_options) == (True, ["ro"])
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode('{"path":"/d","readonly":true}', type=MountBucket)


def test_a_request_in_a_log_shows_no_secret() -> None:
    key = BucketCredentials(access_key_id="AKIA12345", secret_access_key="hidden")
    assert "hidden" not in repr(MountBucket(path="/d", credentials=key))
