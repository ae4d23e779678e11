"""File operations where a rename is impossible, a disk is full or read-only, or layers lie."""

import ctypes
import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll import errors
from atoll.agent.files.spools import TEMPORARY
from integration.agent.files_calls import call, read, write

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.getuid() != 0, reason="mounts file systems"),
]

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNS, _RDONLY, _REMOUNT, _BIND, _PRIVATE = 0x20000, 1, 32, 4096, 0x4_4000


def _mount(source: object, target: object, type: str = "", flags: int = 0, data: str = "") -> None:
    arguments = [str(source).encode(), str(target).encode(), type.encode()]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def _in_own_namespace(body: Callable[[], None]) -> None:
    """Run *body* in a process whose mounts nobody else sees and that takes them along."""
    pid = os.fork()
    if not pid:
        try:
            assert _libc.unshare(_NEWNS) == 0
            _mount("none", "/", flags=_PRIVATE)
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def _leftovers(path: Path) -> list[str]:
    return [name for name in os.listdir(path) if name.startswith(TEMPORARY.decode())]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    def body() -> None:
        _mount("none", tmp_path, "tmpfs", data="size=1m")
        (tmp_path / "f").write_bytes(b"old")
        for append in (False, True):
            with pytest.raises(errors.NoSpaceError) as caught:
                write(tmp_path / "f", *[b"x" * 500_000] * 8, append=append)
            assert caught.value.context["path"] == str(tmp_path / "f")
        (tmp_path / "half").write_bytes(b"y" * 600_000)
        with pytest.raises(errors.NoSpaceError):
            call("copy_file", source=str(tmp_path / "half"), target=str(tmp_path / "copy"))
        with pytest.raises(errors.NoSpaceError):
            call("upload", path=str(tmp_path / "new"), body=[_tar_of(600_000)])
        assert sorted(os.listdir(tmp_path)) == ["f", "half"]
        assert (tmp_path / "f").read_bytes() == b"old"

    _in_own_namespace(body)


def _tar_of(size: int) -> bytes:
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("f")
        info.size = size
        archive.addfile(info, io.BytesIO(b"x" * size))  # zeros would become holes
    return buffer.getvalue()


def test_a_read_only_mount_is_typed(tmp_path: Path) -> None:
    def body() -> None:
        (tmp_path / "f").write_bytes(b"old")
        _mount(tmp_path, tmp_path, flags=_BIND)
        _mount("none", tmp_path, flags=_BIND | _REMOUNT | _RDONLY)
        path = str(tmp_path / "f")
        for attempt in (
            lambda: write(path, b"x"),
            lambda: write(path, b"x", append=True),
            lambda: write(tmp_path / "new", b"x"),
            lambda: call("delete_file", path=path),
            lambda: call("mkdir", path=str(tmp_path / "d"), recursive=True),
            lambda: call("rename_file", source=path, target=path + "2"),
            lambda: call("set_permissions", path=path, mode=0o600),
            lambda: call("upload", path=str(tmp_path), body=[_tar_of(1)]),
            lambda: call("replace_in_files", paths=[path], old="o", new="x"),
        ):
            with pytest.raises(errors.ReadOnlyError):
                attempt()
        assert read(path) == b"old"

    _in_own_namespace(body)


def test_a_file_that_is_mounted_itself_is_written_in_place(tmp_path: Path) -> None:
    def body() -> None:
        (tmp_path / "outer").write_bytes(b"a longer text")
        (tmp_path / "f").touch()
        _mount(tmp_path / "outer", tmp_path / "f", flags=_BIND)
        write(tmp_path / "f", b"new")
        assert (tmp_path / "outer").read_bytes() == b"new"
        assert not _leftovers(tmp_path)

    _in_own_namespace(body)


def test_a_single_file_mounted_into_a_read_only_directory_is_written(tmp_path: Path) -> None:
    def body() -> None:
        (tmp_path / "outer").write_bytes(b"old")
        (tmp_path / "ro").mkdir()
        (tmp_path / "ro/f").touch()
        _mount(tmp_path / "ro", tmp_path / "ro", flags=_BIND)
        _mount("none", tmp_path / "ro", flags=_BIND | _REMOUNT | _RDONLY)
        _mount(tmp_path / "outer", tmp_path / "ro/f", flags=_BIND)
        write(tmp_path / "ro/f", b"new")
        write(tmp_path / "ro/f", b"er", append=True)
        assert (tmp_path / "outer").read_bytes() == b"newer"

    _in_own_namespace(body)


def _overlay(base: Path) -> Path:
    """Mount an overlay as a sandbox's root is made: its lower layer is the image."""
    (base / "data").mkdir()
    _mount("none", base / "data", "tmpfs")
    for name in ("lower/dir/sub", "upper", "work", "root"):
        (base / "data" / name).mkdir(parents=True)
    (base / "data/lower/dir/f").write_bytes(b"of the image")
    (base / "data/lower/dir/f").chmod(0o4755)
    data = ",".join(f"{name}dir={base}/data/{name}" for name in ("lower", "upper", "work"))
    _mount("overlay", base / "data/root", "overlay", data=data)
    return base / "data/root"


def test_files_of_the_image_are_replaced_with_their_mode(tmp_path: Path) -> None:
    def body() -> None:
        root = _overlay(tmp_path)
        write(root / "dir/f", b"new")
        write(root / "dir/made", b"made")
        assert (root / "dir/f").read_bytes() == b"new"
        assert stat.S_IMODE((root / "dir/f").stat().st_mode) == 0o4755
        assert not _leftovers(root / "dir")

    _in_own_namespace(body)


@pytest.mark.parametrize("op", ["rename_file", "move_file"])
def test_directories_of_the_image_can_be_renamed(tmp_path: Path, op: str) -> None:
    """The overlay itself refuses with EXDEV."""

    def body() -> None:
        root = _overlay(tmp_path)
        call(op, source=str(root / "dir"), target=str(root / "renamed"))
        assert os.listdir(root) == ["renamed"]
        assert (root / "renamed/f").read_bytes() == b"of the image"
        assert (root / "renamed/sub").is_dir()

    _in_own_namespace(body)


def test_an_upload_goes_over_a_mount_inside_its_target(tmp_path: Path) -> None:
    def body() -> None:
        (tmp_path / "t/volume").mkdir(parents=True)
        _mount("none", tmp_path / "t/volume", "tmpfs")
        import io
        import tarfile

        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in ("volume/f", "g"):
                archive.addfile(tarfile.TarInfo(name))
        call("upload", path=str(tmp_path / "t"), body=[buffer.getvalue()])
        assert os.listdir(tmp_path / "t/volume") == ["f"]
        assert sorted(os.listdir(tmp_path / "t")) == ["g", "volume"]

    _in_own_namespace(body)
