"""Which of the host's package sources the base image is made from.

Mirrors a site has set up must be used, while third-party archives of the host (editors, cloud
tools) must not get into the image. Kept are lines of the wanted suite (and its updates and
security) with component ``main`` that are signed by Debian's own keys or name no key. User names
and passwords in addresses are dropped: the lines stay in the image.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<rest>.+)")
_USERINFO = re.compile(r"(?<=://)[^/@]*@")
_ACQUIRE = re.compile(r'Acquire::(?:https?::|Check-Valid-Until |Check-Date |Retries )[^"]*"[^"]*";')


class Source(NamedTuple):
    """One archive: address, suite, components, and the keyring it is tied to."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    def line(self) -> str:
        """Return the one-line form with ``main`` only."""
        return f"deb {_USERINFO.sub('', self.uri)} {self.suite} main"


def parse_list(text: str) -> Iterator[Source]:
    """Read the one-line format (``sources.list``)."""
    for raw in text.splitlines():
        match = _ONE_LINE.fullmatch(raw.partition("#")[0].strip())
        if not match:
            continue
        suite, *components = match["rest"].split()
        options = dict(
            pair.split("=", 1) for pair in (match["options"] or "").split() if "=" in pair
        )
        yield Source(match["uri"], suite, tuple(components), options.get("signed-by", ""))


def parse_deb822(text: str) -> Iterator[Source]:
    """Read the stanza format (``*.sources``)."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") == "no":
            continue
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(uri, suite, components, fields.get("signed-by", ""))


def host_sources(files: Iterable[tuple[str, str]]) -> list[Source]:
    """Parse (name, text) pairs of a host's source files."""
    return [
        source
        for name, text in files
        for source in (parse_deb822 if PurePath(name).suffix == ".sources" else parse_list)(text)
    ]


def choose(sources: Iterable[Source], suite: str) -> tuple[str, ...]:
    """Return the lines for *suite*; none where the host names none: mmdebstrap knows the public ones."""
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    lines = tuple(dict.fromkeys(s.line() for s in sources if s.suite in wanted and _is_debian(s)))
    return lines if any(line.split()[2] == suite for line in lines) else ()


def acquire_options(dump: str) -> tuple[str, ...]:
    """Return the lines of ``apt-config dump`` that say how to reach archives (proxies, retries)."""
    return tuple(line.strip() for line in dump.splitlines() if _ACQUIRE.fullmatch(line.strip()))


def _is_debian(source: Source) -> bool:
    remote = source.uri.startswith(("http://", "https://"))
    key = source.signed_by
    return remote and "main" in source.components and (not key or "debian-archive" in key)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[key] = f"{fields.get(key, '')} {line.strip()}"
        elif ":" in line:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()
    return fields
