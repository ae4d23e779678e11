"""An image's configuration is foreign data: what is usable is used, the rest is as if missing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atoll.images.config import ImageConfig, image_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
)
FIELDS = ["Env", "WorkingDir", "User", "Entrypoint", "Cmd", "ExposedPorts"]


def test_all_fields_are_honoured() -> None:
    document = {
        "config": {
            "Env": ["PATH=/bin", "A=b=c", "EMPTY="],
            "WorkingDir": "/srv",
            "User": "app:staff",
            "Entrypoint": ["/init"],
            "Cmd": ["a", "b"],
            "ExposedPorts": {"8080/tcp": {}, "53/udp": {}, "80": {}},
        }
    }
    assert image_config(document) == ImageConfig(
        env={"PATH": "/bin", "A": "b=c", "EMPTY": ""},
        workdir="/srv",
        user="app:staff",
        entrypoint=("/init",),
        cmd=("a", "b"),
        ports=(80, 8080),
    )


def test_words_of_a_comment_after_expose_are_no_ports() -> None:
    """The quick start's Dockerfile has one, and buildah 1.28 takes its words for ports."""
    names = ["#/tcp", "Required/tcp", "8080/tcp", "3000/tcp", "99999/tcp", "²/tcp", "0/tcp"]
    document: dict[str, Any] = {"config": {"ExposedPorts": {name: {} for name in names}}}
    assert image_config(document).ports == (3000, 8080)


def test_an_image_without_a_path_gets_the_usual_one() -> None:
    assert "/usr/bin" in image_config({}).env["PATH"].split(":")


def test_a_relative_workdir_is_not_used() -> None:
    assert image_config({"config": {"WorkingDir": "x"}}).workdir == "/workspace"


@given(JSON | st.fixed_dictionaries({"config": st.dictionaries(st.sampled_from(FIELDS), JSON)}))
def test_no_document_breaks_the_reader(document: Any) -> None:
    config = image_config(document)
    assert config.workdir.startswith("/")
    assert all(1 <= port <= 65_535 for port in config.ports)
