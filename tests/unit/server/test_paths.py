import pytest

from atoll.server.paths import Found, Paths
from atoll.wire import ops


@pytest.fixture
def paths() -> Paths[str]:
    found: Paths[str] = Paths()
    for path in ("/a", "/a/{x}", "/a/{x}/b", "/a/{x}/c/{y}", "/a/fixed", "/a/{x}/{z}/d"):
        found.add(path, path)
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a", ("/a", {})),
        ("/a/1", ("/a/{x}", {"x": "1"})),
        ("/a/fixed", ("/a/fixed", {})),
        ("/a/fixed/b", ("/a/{x}/b", {"x": "fixed"})),
        ("/a/1/c/2", ("/a/{x}/c/{y}", {"x": "1", "y": "2"})),
        ("/a/1/b/d", ("/a/{x}/{z}/d", {"x": "1", "z": "b"})),
    ],
)
def test_a_path_is_found_with_what_stands_at_its_placeholders(
    paths: Paths[str], path: str, expected: tuple[str, dict[str, str]]
) -> None:
    assert paths.find(path) == Found(*expected)


@pytest.mark.parametrize("path", ["", "/", "a", "/a/", "//a", "/a//b", "/a/1/", "/A", "/a/1/x"])
def test_what_is_no_path_of_ours_is_not_found(paths: Paths[str], path: str) -> None:
    assert paths.find(path) is None


def test_every_operation_is_found_at_its_own_path() -> None:
    found: Paths[str] = Paths()
    for op in ops.TABLE:
        found.add(op.path, op.path)
    for op in ops.TABLE:
        there = found.find(op.path.replace("{", "<").replace("}", ">"))
        assert there is not None
        assert there.target == op.path
