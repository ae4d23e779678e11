from pathlib import Path

import pytest

from atoll import errors
from atoll.agent.interpreter import programs


def test_languages_have_the_names_people_arrive_with() -> None:
    names = ["python", "python3", "js", "node", "JavaScript", "ts"]
    assert [programs.language(name) for name in names] == [
        "python", "python", "javascript", "javascript", "javascript", "typescript",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ruby", "", None, 3])
def test_an_unknown_language_is_a_typed_error(name: object) -> None:
    with pytest.raises(errors.InvalidLanguageError):
        programs.language(name)


def test_an_image_without_an_interpreter_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(errors.PythonNotAvailableError):
        programs.program("python", {"PATH": str(tmp_path)})
    with pytest.raises(errors.JavascriptNotAvailableError):
        programs.program("typescript", {})


def test_the_path_of_the_context_decides(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        (folder / "python3").touch(mode=0o755)
        (folder / "node").touch(mode=0o755)
    (first / "python3").chmod(0o644)
    path = {"PATH": f"{first}:{second}"}
    assert programs.program("python", path).path == str(second / "python3")
    found = programs.program("typescript", path)
    assert (found.path, found.argv[-1]) == (str(first / "node"), "typescript")


def test_the_kernels_are_there() -> None:
    for name in ("atoll_kernel/zygote.py", "javascript/kernel.cjs"):
        assert Path(programs.KERNELS, name).is_file()
