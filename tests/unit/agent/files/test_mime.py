import io
import zipfile

import pytest

from atoll.agent.files.mime import guess


def _zip(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("path", "head", "kind"),
    [
        (b"/a.png", b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"/wrong.txt", b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"/x", b"SQLite format 3\0", "application/vnd.sqlite3"),
        (b"/m.wasm", b"\0asm\1\0\0\0", "application/wasm"),
        (b"/d.docx", _zip("[Content_Types].xml"), "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (b"/noname", _zip("xl/workbook.xml"), "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        (b"/noname", _zip("a"), "application/zip"),
        (b"/fake.png", _zip("a"), "application/zip"),
        (b"/x.webm", b"\x1aE\xdf\xa3....", "video/webm"),
        (b"/b", b"\xff\xfe\xfd", "application/octet-stream"),
        (b"/b.txt", b"\xff\xfe\xfd", "application/octet-stream"),
    ],
)  # fmt: skip
def test_binary_content_is_recognised(path: bytes, head: bytes, kind: str) -> None:
    assert guess(path, head, text=False) == kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"/a.py", "text/x-python"),
        (b"/a.JSON", "application/json"),
        (b"/a.unknown", "text/plain"),
        (b"/Makefile", "text/plain"),
        (b"/.env", "text/plain"),
        (b"/dir.png/readme", "text/plain"),
        (b"/empty.csv", "text/csv"),
    ],
)
def test_text_goes_by_its_extension(path: bytes, kind: str) -> None:
    assert guess(path, b"hello", text=True) == kind


def test_content_cannot_put_a_line_into_a_header() -> None:
    """The type becomes an HTTP header of the engine's answer."""
    evil = b"PK\3\4" + bytes(26) + b"mimetypeapplication/x\r\nX-Evil: 1PK"
    assert guess(b"/x", evil, text=False) == "application/zip"
