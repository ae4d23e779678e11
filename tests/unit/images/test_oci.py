"""Layouts are written so that tools read them, and read as foreign data."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import InvalidImageError
from atoll.images import oci

LAYER = "ab" * 32
DOCUMENT: dict[str, Any] = {
    "os": "linux",
    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{LAYER}"]},
}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    digest = oci.write_layout(tmp_path, "base", DOCUMENT, (LAYER, 10))
    image = oci.read_layout(tmp_path)
    assert image.digest == digest == oci.document_digest(DOCUMENT)
    assert image.document == DOCUMENT
    assert [layer.diff_id for layer in image.layers] == [LAYER]


def test_an_image_index_leads_to_its_manifest(tmp_path: Path) -> None:
    digest = oci.write_layout(tmp_path, "base", DOCUMENT, (LAYER, 10))
    index = (tmp_path / "index.json").read_bytes()
    inner = "cd" * 32
    oci.blob_path(tmp_path, inner).write_bytes(index)
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": f"sha256:{inner}"}]}))
    assert oci.read_layout(tmp_path).digest == digest


@pytest.mark.parametrize(
    "index",
    [
        "", "[]", "{}", "not json", '{"manifests": []}', '{"manifests": [{"digest": "sha256:12"}]}',
        '{"manifests": [{"digest": "../../../etc/passwd"}]}',
        '{"manifests": [{"digest": "sha256:%s"}]}' % ("ef" * 32), '{"manifests": 1}',
    ],
)  # fmt: skip
def test_a_malformed_layout_is_a_typed_error(tmp_path: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(InvalidImageError):
        oci.read_layout(tmp_path)


def test_layers_that_do_not_match_the_configuration_are_refused(tmp_path: Path) -> None:
    document = DOCUMENT | {"rootfs": {"diff_ids": [f"sha256:{LAYER}"] * 2}}
    oci.write_layout(tmp_path, "base", document, (LAYER, 10))
    with pytest.raises(InvalidImageError):
        oci.read_layout(tmp_path)


def test_a_huge_document_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "index.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidImageError):
        oci.read_layout(tmp_path)


def test_announced_layers_have_a_name_and_no_content(tmp_path: Path) -> None:
    oci.announce(tmp_path, [LAYER])
    assert oci.blob_path(tmp_path, LAYER).stat().st_size == 0
