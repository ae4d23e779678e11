"""References are read as Docker reads them, and our own names never reach a registry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import InvalidImageError
from atoll.images import reference

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("cloudflare/sandbox", "docker.io/cloudflare/sandbox:latest"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/library/python", "docker.io/library/python:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x:1", "localhost:5000/x:1"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1"),
        (f"ghcr.io/a@{DIGEST}", f"ghcr.io/a@{DIGEST}"),
        (f"ghcr.io/a:v1@{DIGEST}", f"ghcr.io/a@{DIGEST}"),
        ("atoll/base", "atoll/base:latest"),
        ("atoll/mine:2", "atoll/mine:2"),
    ],
)
def test_a_reference_has_one_full_form(text: str, full: str) -> None:
    assert str(reference.parse(text)) == full
    assert str(reference.parse(full)) == full


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "a:", "a@", "A", "a//b", "/a", "a/", "../a", "a/../b", "-x", "--all", "a b", "a\0",
        "a\n", "a;touch x", "$(id)", "/root", "./here", "a:tag with space", "a:" + "t" * 129,
        "a@sha256:12", "a@md5:" + "0" * 32, "x" * 600, "exa_mple.com:port/x", "oci:/etc", "a:b:c",
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    """Among these are host paths, options and shell words: none may reach a tool's argv."""
    with pytest.raises(InvalidImageError) as caught:
        reference.parse(text)
    assert caught.value.suggestion


@given(st.text(max_size=80))
def test_any_text_is_a_reference_or_a_typed_error(text: str) -> None:
    try:
        full = str(reference.parse(text))
    except InvalidImageError:
        return
    assert not full.startswith("-")
    assert not any(c.isspace() or c == "\0" for c in full)
    assert str(reference.parse(full)) == full


def test_names_of_our_own_are_never_asked_for_at_a_registry() -> None:
    assert reference.parse("atoll/base").is_local
    assert not reference.parse("docker.io/atoll/base").is_local


@pytest.mark.parametrize("tag", ["", ":latest", ":0.3.1-python", ":0.12.0-musl"])
@pytest.mark.parametrize("name", ["cloudflare/sandbox", "docker.io/cloudflare/sandbox"])
def test_the_base_image_stands_in_for_cloudflares(name: str, tag: str) -> None:
    first, second = reference.candidates(name + tag, {})
    assert first.startswith("docker.io/cloudflare/sandbox:")
    assert second == "atoll/base:latest"


def test_an_image_of_a_similar_name_has_no_stand_in() -> None:
    assert len(reference.candidates("cloudflare/sandbox-x", {})) == 1
    assert len(reference.candidates("ghcr.io/cloudflare/sandbox", {})) == 1


def test_an_alias_is_binding_and_the_longest_prefix_wins() -> None:
    aliases = {"docker.io/": "mirror.example/all", "docker.io/cloudflare/": "atoll/base"}
    assert reference.candidates("cloudflare/sandbox:1", aliases) == ("atoll/base:latest",)
    assert reference.candidates("python", aliases) == ("mirror.example/all:latest",)


def test_an_alias_that_is_no_reference_is_refused() -> None:
    with pytest.raises(InvalidImageError):
        reference.candidates("python", {"python": "/etc"})


def test_only_a_full_digest_is_a_digest() -> None:
    assert reference.is_digest(DIGEST)
    assert not reference.is_digest("sha256:" + "ab" * 31)
    assert not reference.is_digest(f"a@{DIGEST}")


@pytest.mark.parametrize("folder", [".", "./tools", "/srv/tools", "../tools"])
def test_a_folder_is_no_image_until_it_is_built(folder: str) -> None:
    with pytest.raises(InvalidImageError) as refused:
        reference.parse(folder)
    assert "atoll image build" in str(refused.value.suggestion)
