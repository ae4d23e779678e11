"""The changes a Dockerfile gets before it is built, and nothing more. Pure.

* ``FROM`` and ``COPY --from`` name images in full form, or the image that stands in for them.
  Builders resolve short names by rules of their host; here they mean the same everywhere.
* After each ``FROM`` an ``ARG`` line makes given variables known to the steps. Unlike ``ENV`` it
  leaves nothing in the image's configuration.
* A comment at the end of an ``EXPOSE`` line goes: people write it, older builders take its words
  for ports and newer ones refuse it.

Everything else passes unchanged, line for line.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from atoll.errors import InvalidImageError

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(\s+|$)")
_KNOWN = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
    "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
_HEREDOC = re.compile(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2")
_FROM = re.compile(
    r"(?P<head>\s*FROM\s+(?:--\S+\s+)*)(?P<image>[^\s\\]+)(?P<tail>(?:\s+AS\s+(?P<stage>\S+))?\s*)",
    re.IGNORECASE,
)
_COPY_FROM = re.compile(
    r"(?P<head>\s*(?:COPY|ADD)\s.*?--from=)(?P<image>\S+)", re.IGNORECASE | re.DOTALL
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:(:[-+])([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"(\w+)(?:=(?:\"([^\"]*)\"|'([^']*)'|(\S*)))?")

Substitute = Callable[[str], str]
"""Gives the image to use for an image named in a Dockerfile."""


class Instruction(NamedTuple):
    """One instruction with its lines (continuations and here-documents included)."""

    word: str  # upper case; empty for comments and blank lines
    text: str
    line: int  # of its first line, from 1


def instructions(text: str) -> Iterator[Instruction]:
    """Split a Dockerfile; joining all `text` gives the file back."""
    lines = text.splitlines(keepends=True)
    escape = _escape_character(lines)
    position = 0
    while position < len(lines):
        start = position
        word = _word(lines[position])
        position = _end(lines, start, escape) if word else start + 1
        yield Instruction(word, "".join(lines[start:position]), start + 1)


def images(text: str, build_args: Mapping[str, str]) -> tuple[str, ...]:
    """Return the outside images a Dockerfile names, each once, in order, variables replaced.

    Raises:
        InvalidImageError: there is no FROM, or one names no image.
    """
    found: dict[str, None] = {}

    def note(image: str) -> str:
        found[image] = None
        return image

    rewrite(text, note, build_args=build_args)
    return tuple(found)


def rewrite(
    text: str,
    substitute: Substitute,
    *,
    build_args: Mapping[str, str],
    arguments: tuple[str, ...] = (),
) -> str:
    """Return the Dockerfile to build.

    Args:
        text: the user's file.
        substitute: called for each outside image.
        build_args: values for ``ARG`` lines before the first ``FROM``.
        arguments: names declared after each ``FROM``.

    Raises:
        InvalidImageError: there is no FROM, or one names no image, or an instruction is unknown.
    """
    stages: set[str] = set()
    variables: dict[str, str] = {}
    parts: list[str] = []
    declared = f"ARG {' '.join(arguments)}\n" if arguments else ""
    in_stage = False
    for item in instructions(text):
        _check(item)
        if item.word == "ARG" and not in_stage:
            variables |= _assignments(item.text, variables, build_args)
        if item.word == "FROM":
            in_stage = True
            parts.append(_rewrite_from(item, substitute, stages, variables))
            parts.append(declared)
        elif item.word in {"COPY", "ADD"}:
            parts.append(_rewrite_copy(item, substitute, stages))
        elif item.word == "EXPOSE":
            parts.append(re.sub(r"\s+#.*", "", item.text.rstrip("\n")) + "\n")
        else:
            parts.append(item.text)
    if not in_stage:
        raise _invalid("it has no FROM", 1)
    return "".join(parts)


def _check(item: Instruction) -> None:
    """Refuse what no builder knows; builders name no line."""
    text = item.text.strip()
    if item.word in _KNOWN or not text or text.startswith("#"):
        return
    word = text.split(maxsplit=1)[0][:40]
    similar = difflib.get_close_matches(word.upper(), sorted(_KNOWN), n=1)
    hint = f", did you mean {similar[0]}?" if similar else ""
    raise _invalid(f"{word} is not an instruction{hint}", item.line)


def _rewrite_from(
    item: Instruction, substitute: Substitute, stages: set[str], variables: Mapping[str, str]
) -> str:
    match = _FROM.fullmatch(item.text)
    if not match:
        raise _invalid(f"this FROM cannot be read: {item.text.strip()[:200]}", item.line)
    image = expand(match["image"], variables)
    if not image:
        raise _invalid(f"{match['image']} is empty; give it a value with ARG", item.line)
    if image.lower() not in stages and image != "scratch":
        image = substitute(image)
    if match["stage"]:
        stages.add(match["stage"].lower())
    return f"{match['head']}{image}{match['tail'].rstrip()}\n"


def _rewrite_copy(item: Instruction, substitute: Substitute, stages: set[str]) -> str:
    match = _COPY_FROM.match(item.text)
    if not match or match["image"].isdecimal() or match["image"].lower() in stages:
        return item.text
    return match["head"] + substitute(match["image"]) + item.text[match.end() :]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$name``, ``${name}``, ``${name:-default}`` and ``${name:+other}``."""

    def value(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[4], "")
        if match[2] == ":-":
            return known or match[3]
        if match[2] == ":+":
            return match[3] if known else ""
        return known

    return _VARIABLE.sub(value, text.strip("\"'"))


def _assignments(
    text: str, variables: Mapping[str, str], build_args: Mapping[str, str]
) -> dict[str, str]:
    _, _, rest = text.strip().partition(" ")
    values = {}
    for match in _ASSIGNMENT.finditer(rest):
        default = match[2] or match[3] or match[4] or ""
        values[match[1]] = build_args.get(match[1], expand(default, variables))
    return values


def _escape_character(lines: list[str]) -> str:
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if not match:
            break
        if match[1].lower() == "escape" and match[2] in {"\\", "`"}:
            return match[2]
    return "\\"


def _word(line: str) -> str:
    match = _INSTRUCTION.match(line)
    return match[1].upper() if match else ""


def _end(lines: list[str], start: int, escape: str) -> int:
    """Return the index after the instruction that begins at *start*."""
    position = start
    while position + 1 < len(lines) and _continues(lines[position], escape):
        position += 1
    end = position + 1
    if _word(lines[start]) in {"RUN", "COPY", "ADD"}:
        for match in _HEREDOC.finditer("".join(lines[start:end])):
            end = _end_of_document(lines, end, match[3], strips=bool(match[1]))
    return end


def _continues(line: str, escape: str) -> bool:
    # Comments and blank lines inside a continued instruction do not end it.
    return line.rstrip().endswith(escape) or line.lstrip().startswith("#") or not line.strip()


def _end_of_document(lines: list[str], start: int, word: str, *, strips: bool) -> int:
    for position in range(start, len(lines)):
        line = lines[position].rstrip("\r\n")
        if (line.lstrip("\t") if strips else line) == word:
            return position + 1
    return start  # `1<<shift` in a shell step, no document


def _invalid(reason: str, line: int) -> InvalidImageError:
    return InvalidImageError(f"Dockerfile line {line}: {reason}", context={"line": line})
