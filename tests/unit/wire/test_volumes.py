import msgspec
import pytest

from atoll.wire.volumes import CreateVolume, VolumeInfo, VolumePage


def test_requests_refuse_what_they_do_not_know() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"name": "v", "readonly": true}', type=CreateVolume)


def test_a_page_is_an_iterable_of_its_volumes() -> None:
    body = b'{"volumes": [{"name": "v", "namespace": "N", "size": 1, "createdAt": "2030-01-01T00:00:00Z"}]}'
    page = msgspec.json.decode(body, type=VolumePage)
    assert len(page) == 1
    assert all(isinstance(volume, VolumeInfo) and volume.sandboxes == [] for volume in page)
