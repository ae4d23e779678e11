import msgspec
import pytest

from atoll.wire.backups import BackupPage, CreateBackup, DirectoryBackup

JSON = (
    '{"id":"b","dir":"/tmp","namespace":"N","sandbox":"box","createdAt":"2026-01-01T00:00:00Z",'
    '"contentSize":5,"unknown":1}'
)


def test_a_backup_of_a_newer_engine_is_read_and_told_again() -> None:
    found = msgspec.json.decode(JSON, type=DirectoryBackup)
    assert (found.content_size, found.compression) == (5, "zstd")
    assert msgspec.convert(found.to_dict(), DirectoryBackup) == found


def test_a_page_is_its_entries() -> None:
    page = BackupPage(backups=[msgspec.json.decode(JSON, type=DirectoryBackup)])
    assert ([found.id for found in page], len(page)) == (["b"], 1)


def test_a_misspelt_option_is_an_error() -> None:
    assert msgspec.json.encode(CreateBackup(dir="/tmp")) == b'{"dir":"/tmp"}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode('{"dir":"/tmp","exclude":["x"]}', type=CreateBackup)
