"""References: their grammar, their full form, and which of them the base image stands in for.

Docker's rules: a missing registry is ``docker.io``, a single name is in ``library/``, a missing
tag is ``latest``. ``atoll/…`` names images of our own and never a registry: nobody who registers
that name at a public registry can get code onto a host.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from atoll.errors import InvalidImageError

BASE = "atoll/base"
"""The image that `atoll image build-base` makes."""

_LOCAL = "atoll/"
_CLOUDFLARE = "docker.io/cloudflare/sandbox"
_MAX_LENGTH = 512
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_REGISTRY = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
    r"|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Reference(NamedTuple):
    """A parsed reference. `registry` is empty for images of our own."""

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository

    @property
    def is_local(self) -> bool:
        """Whether no registry is ever asked for it."""
        return not self.registry

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"


def parse(text: str) -> Reference:
    """Return the full form of *text*.

    Raises:
        InvalidImageError: it is not a reference; names what is wrong.
    """
    if not text or len(text) > _MAX_LENGTH:
        raise _invalid(text, f"it must have 1 to {_MAX_LENGTH} characters")
    rest, _, digest = text.partition("@")
    if "@" in text and not _DIGEST.fullmatch(digest):
        raise _invalid(text, "a digest is sha256: and 64 hexadecimal digits")
    rest, tag = _split_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _invalid(text, f"{tag!r} is not a tag")
    registry, repository = _split_registry(rest)
    if registry and not _REGISTRY.fullmatch(registry):
        raise _invalid(text, f"{registry!r} is not a registry")
    if not all(_REPOSITORY.fullmatch(part) for part in repository.split("/")):
        raise _invalid(text, "a name has lower case letters, digits and single . _ - between them")
    return Reference(registry, repository, "" if digest else tag or "latest", digest)


def is_digest(text: str) -> bool:
    """Whether *text* is a bare image digest, as `Image.digest` gives it."""
    return _DIGEST.fullmatch(text) is not None


def candidates(text: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """Return the images that may serve *text*, the preferred one first, in full form.

    An entry of *aliases* (reference prefix → image) is binding. The image of Cloudflare's SDK is
    used where it is to be had; else the base image takes its place, whatever its tag says.

    Raises:
        InvalidImageError: *text* or the alias it names is no reference.
    """
    wanted = parse(text)
    if target := _alias(text, wanted, aliases):
        return (str(parse(target)),)
    if wanted.name == _CLOUDFLARE:
        return (str(wanted), str(parse(BASE)))
    return (str(wanted),)


def _alias(text: str, wanted: Reference, aliases: Mapping[str, str]) -> str | None:
    for prefix in sorted(aliases, key=len, reverse=True):
        if text.startswith(prefix) or str(wanted).startswith(prefix):
            return aliases[prefix]
    return None


def _split_tag(text: str) -> tuple[str, str | None]:
    head, colon, tail = text.rpartition(":")
    return (head, tail) if colon and "/" not in tail else (text, None)


def _split_registry(text: str) -> tuple[str, str]:
    if text.startswith(_LOCAL):
        return "", text
    first, slash, rest = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        if first in {"index.docker.io", "registry-1.docker.io"}:
            first = "docker.io"
        return first, rest if first != "docker.io" or "/" in rest else f"library/{rest}"
    return "docker.io", text if slash else f"library/{text}"


def _invalid(text: str, reason: str) -> InvalidImageError:
    suggestion = "write [registry/]name[:tag], for example docker.io/library/python:3.12"
    if text.startswith((".", "/")):
        suggestion = (
            "build the folder first (`atoll image build FOLDER --tag NAME`), then name NAME"
        )
    return InvalidImageError(
        f"{text[:_MAX_LENGTH]!r} is not an image reference: {reason}",
        context={"image": text[:_MAX_LENGTH]},
        suggestion=suggestion,
    )
