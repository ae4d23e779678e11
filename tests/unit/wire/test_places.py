from pathlib import Path

import pytest

from atoll.wire import places


def test_root_has_the_places_of_the_system() -> None:
    environment = {"HOME": "/root", "XDG_STATE_HOME": "/x", "XDG_CACHE_HOME": "/x"}
    assert places.state_dir(0, environment) == Path("/var/lib/atoll")
    assert places.cache_dir(0, environment) == Path("/var/cache/atoll")


@pytest.mark.parametrize(
    ("environment", "state", "cache"),
    [
        ({"HOME": "/home/u"}, "/home/u/.local/state/atoll", "/home/u/.cache/atoll"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/c"}, "/s/atoll", "/c/atoll"),
        ({"HOME": "/h", "XDG_STATE_HOME": "s"}, "/h/.local/state/atoll", "/h/.cache/atoll"),
    ],
)
def test_a_user_has_those_of_xdg(environment: dict[str, str], state: str, cache: str) -> None:
    assert str(places.state_dir(1000, environment)) == state
    assert str(places.cache_dir(1000, environment)) == cache
