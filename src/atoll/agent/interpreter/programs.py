"""Which program runs a language, and where the image has it.

The kernels are brought in with the agent, read-only; the interpreters are the image's own.
"""

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from atoll import errors

LANGUAGES: Final[Mapping[str, str]] = {
    "python": "python",
    "python3": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "typescript": "typescript",
    "ts": "typescript",
}

KERNELS: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")

PROTOCOL_FD: Final = 3

_PYTHON: Final = (
    "import sys; sys.path.insert(0, {kernels!r}); "
    "from atoll_kernel.zygote import main; sys.path.remove({kernels!r}); main({fd})"
)


class Program(NamedTuple):
    """What is executed."""

    path: str
    argv: list[str]


def language(name: Any) -> str:
    """Return the language that *name* means.

    Raises:
        InvalidLanguageError: none.
    """
    if isinstance(name, str) and name.lower() in LANGUAGES:
        return LANGUAGES[name.lower()]
    raise errors.InvalidLanguageError(
        f"no code contexts for the language {name!r}",
        context={"language": str(name)[:100], "known": sorted(set(LANGUAGES.values()))},
        suggestion="use python, javascript or typescript",
    )


def program(name: str, env: Mapping[str, str]) -> Program:
    """Return the kernel's program for a language.

    Args:
        env: of the context; its PATH says where to look.

    Raises:
        PythonNotAvailableError: the image has no Python.
        JavascriptNotAvailableError: it has no Node.
    """
    path = env.get("PATH", "")
    if name == "python":
        python = _find(("python3", "python"), path)
        if python is None:
            raise errors.PythonNotAvailableError(
                "the image has no Python",
                context={"path": path},
                suggestion="use an image with python3, or install it in this one",
            )
        code = _PYTHON.format(kernels=KERNELS, fd=PROTOCOL_FD)
        return Program(python, [python, "-c", code])
    node = _find(("node", "nodejs"), path)
    if node is None:
        raise errors.JavascriptNotAvailableError(
            "the image has no Node",
            context={"path": path},
            suggestion="use an image with node, or install it in this one",
        )
    kernel = os.path.join(KERNELS, "javascript", "kernel.cjs")
    options = ["--expose-internals", "--no-warnings"]
    return Program(node, [node, *options, kernel, str(PROTOCOL_FD), name])


def _find(names: tuple[str, ...], path: str) -> str | None:
    for name in names:
        for folder in path.split(":"):
            found = os.path.join(folder or ".", name)
            if os.path.isfile(found) and os.access(found, os.X_OK):
                return found
    return None
