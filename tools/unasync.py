"""Generate the blocking SDK (`sdk/_sync`) from the asynchronous one (`sdk/_async`).

Works on tokens, so that only code, and the words of docstrings and comments that name code, are
changed. ``--check`` compares whole files and whole directories and says what differs.
"""

import argparse
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/atoll/sdk/_async"
TARGET = ROOT / "src/atoll/sdk/_sync"

DROPPED = {"async", "await"}
RENAMED = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncClient": "Client",
    "AsyncHTTP11Connection": "HTTP11Connection",
    "AsyncHTTPTransport": "HTTPTransport",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "AsyncNetworkStream": "NetworkStream",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_aio": "_io",
    "_async": "_sync",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "handle_async_request": "handle_request",
}
WORDS = [
    (re.compile(r"\b(?:an|\(?)async(hronous)?\)? (?=(?:with|for|def|iterator|iterable)\b)"), ""),
    (re.compile(r"\b(?:async|await) "), ""),
    *((re.compile(rf"(?<!\w){re.escape(old)}(?!\w)"), new) for old, new in RENAMED.items()),
]
"""Applied to strings and comments. "an async iterator" becomes "an iterator", see `in_text`."""

FIXES = "I,F811,PYI016,UP007,C416,SIM117"
"""What is left over where an asynchronous and a blocking form become the same."""

CHARTER = '"""The blocking SDK: generated from `_async` by ``tools/unasync.py``, never edited."""\n'


def in_text(text: str) -> str:
    text = text.replace("(async) ", "").replace("an async ", "a ").replace("An async ", "A ")
    text = re.sub(r"\b([Aa]) (?=i(?:terator|terable)\b)", r"\1n ", text)
    for pattern, replacement in WORDS[1:]:
        text = pattern.sub(replacement, text)
    return text


def convert(source: str) -> str:
    """Return blocking code for asynchronous *source*, with untouched layout."""
    lines = source.splitlines(keepends=True)
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for index, token in enumerate(tokens):
        if token.type == tokenize.NAME and token.string in DROPPED:
            edits.append((token.start, tokens[index + 1].start, ""))
        elif token.type == tokenize.NAME and token.string in RENAMED:
            edits.append((token.start, token.end, RENAMED[token.string]))
        elif token.type in {tokenize.STRING, tokenize.COMMENT}:
            edits.append((token.start, token.end, in_text(token.string)))
    for (row, column), (end_row, end_column), text in reversed(edits):
        head, tail = lines[row - 1][:column], lines[end_row - 1][end_column:]
        lines[row - 1 : end_row] = [head + text + tail]
        lines[row:row] = [""] * (end_row - row)  # keep the numbers of the lines before valid
    return "".join(lines)


def ruff(text: str, name: str) -> str:
    """Sort imports, drop names imported twice, format."""
    binary = Path(sys.executable).with_name("ruff")
    file = ["--stdin-filename", str(TARGET / name), "-"]
    fix: list[str | Path] = [
        binary,
        "check",
        "--quiet",
        "--fix-only",
        "--unsafe-fixes",
        "--select",
        FIXES,
    ]
    for command in (fix, [binary, "format", "--quiet"]):
        done = subprocess.run(
            [*command, *file], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def generate() -> dict[str, str]:
    """Return file name → content of the whole directory."""
    files = {}
    for path in sorted(SOURCE.glob("*.py")):
        made = CHARTER
        if path.name != "__init__.py":
            made = ruff(convert(path.read_text(encoding="utf-8")), path.name)
        files[path.name] = made
    return files


def check(files: dict[str, str]) -> list[str]:
    """Return what is wrong with the committed directory."""
    present = {path.name for path in TARGET.glob("*.py")}
    problems = [f"{name}: not generated from anything" for name in sorted(present - files.keys())]
    problems += [f"{name}: missing" for name in sorted(files.keys() - present)]
    problems += [
        f"{name}: differs from its source in _async"
        for name in sorted(files.keys() & present)
        if (TARGET / name).read_text(encoding="utf-8") != files[name]
    ]
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    files = generate()
    if parser.parse_args(arguments).check:
        problems = check(files)
        print("\n".join(problems) or "the blocking SDK is up to date")
        return bool(problems)
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.glob("*.py"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
