import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.files import pathnames
from atoll.errors import ValidationFailedError
from atoll.wire import names


@given(
    st.binary().map(lambda raw: raw.replace(b"\0", b""))
    | st.text("\uef7f\uef80\uefffaä\U0001f600").map(str.encode)
)
def test_every_name_comes_back_and_looks_as_the_agent_shows_it(name: bytes) -> None:
    assert names.to_bytes(names.to_text(name)) == name
    assert names.to_text(name) == pathnames.to_text(name)
    assert names.to_bytes(pathnames.to_text(name)) == name


@pytest.mark.parametrize("text", ["a\0b", "\udc80"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValidationFailedError):
        names.to_bytes(text)
