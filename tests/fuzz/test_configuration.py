"""What a project's configuration may hold: an error that names the file, or a project."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from atoll.errors import InvalidConfigError
from atoll.workers import wrangler
from fuzz.examples import examples
from fuzz.shapes import JUNK, shaped

_TEXT = st.text(max_size=60) | st.text(alphabet="{}[]\",:=\n/*#'1e-.abT\\ue", max_size=80)
_GOOD = st.just({"name": "shop", "main": "main.py"})
_DATA = st.one_of(
    JUNK,
    st.builds(dict.__or__, _GOOD, shaped(wrangler.Config)),
    st.builds(dict.__or__, _GOOD, st.dictionaries(st.sampled_from(wrangler.Config.__struct_fields__), JUNK)),
)  # fmt: skip
_DIGITS = "9" * 5_000
_DEEP = 50_000


@contextmanager
def _project(name: str, content: bytes, secrets: bytes = b"") -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "main.py").touch()
        (root / ".dev.vars").write_bytes(secrets)
        (root / name).write_bytes(content)
        yield root


def _load(name: str, content: bytes, secrets: bytes = b"", environment: str | None = None) -> None:
    with _project(name, content, secrets) as root:
        try:
            found = wrangler.load(root, environment)
        except InvalidConfigError as error:
            assert str(root) in str(error.context["file"])
            msgspec.json.encode(error.to_wire())
            return
        assert found.entry == root / "main.py"


def _toml(data: Any) -> str:
    """Return *data* as TOML: keys of the top with inline values, nested tables inline too."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(_toml, data)) + "]"
    return json.dumps(data)


@examples(40)
@given(_DATA, st.none() | st.just("a"))
def test_every_value_is_a_project_or_an_error_that_names_the_file(
    data: Any, environment: str | None
) -> None:
    text = json.dumps(data)
    _load("wrangler.jsonc", text.encode(), environment=environment)
    if isinstance(data, dict):
        lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in data.items()]
        _load("wrangler.toml", "\n".join(lines).encode(), environment=environment)


@examples(120)
@given(
    st.sampled_from(wrangler.FILES),
    _TEXT.map(lambda t: t.encode(errors="replace")) | st.binary(max_size=40),
)
@example("wrangler.jsonc", b'{"a": ' + _DIGITS.encode() + b"}")
@example("wrangler.toml", b"a = " + _DIGITS.encode())
@example("wrangler.jsonc", b"[" * _DEEP)
@example("wrangler.toml", b"a = " + b"[" * _DEEP)
@example("wrangler.toml", b"name = 'a'\nmain = 'main.py'\n[vars." + b"a." * 5_000 + b"a]\n")
@example("wrangler.toml", b"name = 'a'\nmain = 'main.py'\n[env]\nx = 2024-13-45\n")
@example("wrangler.json", b'{"name": "a", "main": "' + b"m" * 5_000 + b'"}')
@example("wrangler.json", b'{"name": "a", "main": "m\\u0000"}')
@example("wrangler.json", b'{"name": "a", "main": "\\ud800"}')
def test_every_text_is_a_project_or_an_error_that_names_the_file(name: str, text: bytes) -> None:
    _load(name, text)


@examples(60)
@given(st.binary(max_size=30) | st.text(alphabet="A=\"'#\\n \n", max_size=30).map(str.encode))
def test_every_secrets_file_is_read_or_named(secrets: bytes) -> None:
    _load("wrangler.json", b'{"name": "a", "main": "main.py"}', secrets)
