import msgspec
import pytest

from atoll.wire import files


def test_a_misspelt_option_is_an_error_not_a_default() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"path": "/x", "recursiv": true}', type=files.DeleteRequest)


def test_an_older_client_reads_what_a_newer_engine_adds() -> None:
    body = b'{"path": "/x", "size": 1, "newField": [1]}'
    assert msgspec.json.decode(body, type=files.WriteResult).size == 1


def test_names_are_camel_case_on_the_wire() -> None:
    wire = msgspec.to_builtins(files.ListRequest(path="/x", include_hidden=True))
    assert wire == {"path": "/x", "includeHidden": True}


def test_lists_are_iterables_of_their_entries() -> None:
    assert list(files.PathList(paths=["a", "b"])) == ["a", "b"]
    assert len(files.PathList(paths=["a"])) == 1
    empty = files.FileList(files=[], path="/", count=0)
    assert (list(empty), len(empty)) == ([], 0)
    assert list(files.MatchList(matches=[])) == []
