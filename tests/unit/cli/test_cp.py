"""Which side of a copy is the sandbox."""

import pytest

from atoll.cli import main
from atoll.cli.cp import Place, parse


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("box:/workspace/x", Place("box", "/workspace/x")),
        ("box:x:y", Place("box", "x:y")),
        ("box:", Place("box", ".")),
        ("/tmp/x", Place(None, "/tmp/x")),
        ("./a:b", Place(None, "./a:b")),
        ("a/b:c", Place(None, "a/b:c")),
        (":x", Place(None, ":x")),
    ],
)
def test_a_place_is_in_a_sandbox_when_an_id_stands_before_a_colon(text: str, place: Place) -> None:
    assert parse(text) == place


@pytest.mark.parametrize(
    ("words", "told"), [(["a", "b"], "must be in a sandbox"), (["x:a", "y:b"], "both are in")]
)
def test_exactly_one_side_is_a_sandbox(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["cp", *words])
    assert caught.value.code == 2
    assert told in " ".join(capsys.readouterr().err.replace("│", "").split())
