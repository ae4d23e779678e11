import pytest

from atoll import errors
from atoll.agent.files.filters import from_request
from atoll.agent.files.requests import Fields
from atoll.agent.files.spools import temporary_name


def test_repositories_and_packages_are_left_out_by_default() -> None:
    chosen = from_request(Fields({}))
    assert chosen.recursive
    assert not chosen.enters(b"node_modules", b"a/node_modules")
    assert not chosen.enters(b".git", b".git")
    assert chosen.enters(b".github", b".github")


def test_an_empty_exclude_takes_all_but_our_own_temporaries() -> None:
    chosen = from_request(Fields({"exclude": []}))
    assert chosen.enters(b".git", b".git")
    name = temporary_name()
    assert not chosen.enters(name, b"a/" + name)


def test_include_says_what_is_reported_and_not_what_is_looked_into() -> None:
    chosen = from_request(Fields({"include": ["*.py"]}))
    assert chosen.enters(b"src", b"src")
    assert not chosen.reports(b"src")
    assert chosen.reports(b"src/a.py")


def test_include_and_exclude_exclude_each_other() -> None:
    with pytest.raises(errors.ValidationFailedError):
        from_request(Fields({"include": ["a"], "exclude": ["b"]}))


def test_other_options_make_another_digest() -> None:
    one = from_request(Fields({"include": ["a"]})).digest()
    assert one != from_request(Fields({"include": ["b"]})).digest()
    assert one == from_request(Fields({"include": ["a"]})).digest()
