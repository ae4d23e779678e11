import io
import os
import subprocess
import sys
import tarfile

from atoll.agent.files.tars import header, padding


def test_a_member_is_readable_by_others(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "f")
    with open(path, "wb") as file:
        file.write(b"abc")
    blocks = header(b"d/\xff" + b"n" * 200, os.stat(path)) + b"abc" + padding(3)
    with tarfile.open(fileobj=io.BytesIO(blocks), errors="surrogateescape") as archive:
        [member] = archive
        assert os.fsencode(member.name) == b"d/\xff" + b"n" * 200
        assert (member.size, member.uname, member.gname) == (3, "", "")


def test_content_fills_whole_blocks() -> None:
    assert [len(padding(size)) for size in (0, 1, 511, 512, 513)] == [0, 511, 1, 0, 511]


def test_no_user_database_is_loaded() -> None:
    """Name services would run libraries of the image inside the agent."""
    code = (
        "import sys; from atoll.agent.files import tars; tars.load();"
        "sys.exit(sys.modules.get('pwd') is not None or sys.modules.get('grp') is not None)"
    )
    assert subprocess.run([sys.executable, "-I", "-c", code]).returncode == 0
