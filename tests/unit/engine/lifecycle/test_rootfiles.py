import fcntl
from pathlib import Path

from atoll.engine.lifecycle import rootfiles


def test_names_and_resolvers_are_bound_read_only(tmp_path: Path) -> None:
    mounts = rootfiles.write(
        tmp_path / "files", hostname="box", address="10.0.0.2", nameservers=["10.0.0.1"]
    )
    assert {mount.target for mount in mounts} == {"/etc/resolv.conf", "/etc/hosts"}
    assert all(mount.read_only for mount in mounts)
    texts = {mount.target: mount.source.read_text() for mount in mounts}
    assert texts["/etc/resolv.conf"] == "nameserver 10.0.0.1\n"
    assert "10.0.0.2\tbox\n" in texts["/etc/hosts"]


def test_a_sandbox_without_an_address_still_knows_its_name() -> None:
    assert "127.0.1.1\tbox" in rootfiles.hosts("box", None)


def test_two_sandboxes_have_no_file_in_common(tmp_path: Path) -> None:
    """26: a lock on it would be seen by the other."""
    source = tmp_path / "shared"
    source.mkdir()
    (source / "bundle.pem").write_text("certificate")
    mounts = [rootfiles.own_copy(tmp_path / name, source, "/run/x") for name in ("a", "b")]
    files = [mount.source / "bundle.pem" for mount in mounts]
    assert [file.read_text() for file in files] == ["certificate"] * 2
    with files[0].open() as first, files[1].open() as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert all(mount.read_only for mount in mounts)
