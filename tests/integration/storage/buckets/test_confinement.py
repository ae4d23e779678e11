import os
from pathlib import Path

from atoll.storage.buckets import confinement
from atoll.storage.buckets.confinement import Place


def place(folder: Path, **fields: Path | None) -> Place:
    given: dict[str, Path | None] = {"netns": None, "resolv_conf": Path("/etc/resolv.conf")}
    return Place(folder=folder, uid=os.getuid(), owner=1, **{**given, **fields})  # type: ignore[arg-type]


def test_a_secret_is_for_its_client_alone(tmp_path: Path) -> None:
    there = place(tmp_path / "c", cache=tmp_path)
    confinement.prepare(there, "key")
    confinement.prepare(there, "other")
    assert (tmp_path / "c/secret").read_text() == "other"
    assert (tmp_path / "c/secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "cache").is_dir()


def test_a_folder_of_the_host_is_served_without_a_network(tmp_path: Path) -> None:
    argv = confinement.argv(place(tmp_path, local=tmp_path / "data"), ["client"])
    assert "--unshare-net" in argv
    at = argv.index(str(tmp_path / "data"))
    assert argv[at - 1 : at + 2] == ["--bind", str(tmp_path / "data"), "/bucket"]
    assert argv[-1] == "client"


def test_others_have_the_network_they_are_given(tmp_path: Path) -> None:
    argv = confinement.argv(place(tmp_path, netns=Path("/run/ns")), ["client"])
    assert argv[:2] == ["nsenter", "--net=/run/ns"]
    assert "--unshare-net" not in argv
