from pathlib import Path

from atoll.agent.seed import fill


def tree(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): f"{path.lstat().st_mode:o} "
        + (
            str(path.readlink())
            if path.is_symlink()
            else path.read_text()
            if path.is_file()
            else ""
        )
        for path in sorted(root.rglob("*"))
    }


def made(root: Path) -> Path:
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "f").write_text("x")
    (root / "deep" / "er" / "f").chmod(0o750)
    (root / "link").symlink_to("/etc/passwd")
    (root / "dangling").symlink_to("nowhere")
    (root / "folder-link").symlink_to("deep")
    (root / "deep").chmod(0o700)
    return root


def test_a_copy_has_the_same_files_modes_and_links(tmp_path: Path) -> None:
    source, target = made(tmp_path / "a"), tmp_path / "b"
    target.mkdir()
    fill(str(source), str(target))
    assert tree(target) == tree(source)
    assert (target / "deep/er/f").stat().st_mtime_ns == (source / "deep/er/f").stat().st_mtime_ns


def test_a_copy_that_was_cut_short_is_made_whole(tmp_path: Path) -> None:
    source, target = made(tmp_path / "a"), tmp_path / "b"
    (target / "deep").mkdir(parents=True)
    (target / "link").symlink_to("half")
    fill(str(source), str(target))
    assert tree(target) == tree(source)


def test_a_path_that_the_image_lacks_leaves_the_volume_empty(tmp_path: Path) -> None:
    target = tmp_path / "b"
    target.mkdir()
    fill(str(tmp_path / "missing"), str(target))
    assert list(target.iterdir()) == []


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    """It could lead into the agent's own files."""
    made(tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    target = tmp_path / "b"
    target.mkdir()
    fill(str(tmp_path / "link"), str(target))
    assert list(target.iterdir()) == []
