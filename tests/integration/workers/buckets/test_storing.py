from datetime import UTC, datetime
from pathlib import Path

import pytest
from obstore.store import LocalStore

from atoll.errors import FilesystemError
from atoll.workers.buckets.storing import Metadata, Storing, about


def test_a_folder_whose_metadata_is_damaged_still_has_the_object(tmp_path: Path) -> None:
    objects, notes = (LocalStore(tmp_path / name, mkdir=True) for name in ("o", "n"))
    storing = Storing("b", objects, notes)
    with (tmp_path / "content").open("w+b") as file:
        file.write(b"x")
        file.seek(0)
        storing.put("k", file, Metadata({"content_type": "a"}, {}))
    assert storing.get("k", {})[0].http_metadata == {"content_type": "a"}
    (tmp_path / "n/k").write_text("[")
    assert storing.get("k", {})[0].http_metadata == {}
    (tmp_path / "n/k").unlink()
    assert storing.get("k", {})[0].size == 1


def test_failures_name_the_bucket(tmp_path: Path) -> None:
    storing = Storing("b", LocalStore(tmp_path), None)
    with pytest.raises(FilesystemError) as caught, storing.failures():
        raise PermissionError("no")
    assert caught.value.context == {"bucket": "b"}


def test_an_etag_has_no_quotes() -> None:
    meta = {
        "path": "k",
        "size": 1,
        "e_tag": '"x"',
        "last_modified": datetime(2030, 1, 1, tzinfo=UTC),
    }
    assert about(meta, Metadata({}, {})).http_etag == '"x"'
