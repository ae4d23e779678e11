"""Reading and writing OCI image layouts, the form in which skopeo and buildah hand images over.

A layer that is unpacked already is announced to skopeo as an empty file of the blob's name: it
only looks whether the name is there, so an 800 MB base image is not archived again for every
build (25 ms instead of 6 s).
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from atoll.errors import InvalidImageError

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MAX_DOCUMENT = 8 << 20
"""Largest manifest or configuration read, in bytes; registries refuse over 4 MiB."""

_MAX_LAYERS = 127
"""As many as other container engines take: their names have to fit into one page for the mount."""


class Layer(NamedTuple):
    """A layer of an image in a layout. Ids are hexadecimal SHA-256."""

    diff_id: str
    digest: str
    media_type: str


class LayoutImage(NamedTuple):
    """The one image of a layout; layers from the bottom up."""

    digest: str
    document: dict[str, Any]
    layers: tuple[Layer, ...]


def blob_path(layout: Path, digest: str) -> Path:
    """Return where a layout keeps the blob *digest* (hexadecimal)."""
    return layout / "blobs" / "sha256" / digest


def announce(layout: Path, digests: Iterable[str]) -> None:
    """Make skopeo believe that *layout* has these blobs."""
    blob_path(layout, "").mkdir(parents=True, exist_ok=True)
    for digest in digests:
        blob_path(layout, digest).touch()


def read_layout(layout: Path) -> LayoutImage:
    """Read the first image of *layout*.

    Raises:
        InvalidImageError: a document is missing, malformed or contradicts another.
    """
    try:
        index = _document(layout / "index.json")
        manifest = _document(_blob(layout, index["manifests"][0]["digest"]))
        if "manifests" in manifest:
            manifest = _document(_blob(layout, manifest["manifests"][0]["digest"]))
        digest = _hex(manifest["config"]["digest"])
        document = _document(_blob(layout, manifest["config"]["digest"]))
        diff_ids = [_hex(diff_id) for diff_id in document["rootfs"]["diff_ids"]]
        blobs = [(_hex(item["digest"]), str(item["mediaType"])) for item in manifest["layers"]]
        if len(diff_ids) > _MAX_LAYERS:
            raise ValueError(f"{len(diff_ids)} layers, of {_MAX_LAYERS} that can be mounted")
        layers = tuple(Layer(diff_id, *blob) for diff_id, blob in zip(diff_ids, blobs, strict=True))
    except (LookupError, TypeError, ValueError, OSError, msgspec.DecodeError) as error:
        raise InvalidImageError(f"the image's documents are malformed: {error}") from error
    return LayoutImage(digest, document, layers)


def write_layout(layout: Path, name: str, document: dict[str, Any], layer: tuple[str, int]) -> str:
    """Write a layout of a one-layer image whose layer blob is there already.

    Args:
        layout: directory of the layout.
        name: the image's name within the layout.
        document: the image's configuration.
        layer: diff id and size in bytes of the uncompressed layer.

    Returns:
        The image's digest, hexadecimal.
    """
    config, config_size = _put(layout, document)
    diff_id, size = layer
    manifest, manifest_size = _put(
        layout,
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config, config_size),
            "layers": [_descriptor(_LAYER, diff_id, size)],
        },
    )
    annotations = {"org.opencontainers.image.ref.name": name}
    entry = _descriptor(_MANIFEST, manifest, manifest_size) | {"annotations": annotations}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    (layout / "index.json").write_bytes(msgspec.json.encode(index))
    (layout / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
    return config


def document_digest(document: dict[str, Any]) -> str:
    """Return the digest an image with this configuration document has, hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(document)).hexdigest()


def _put(layout: Path, document: dict[str, Any]) -> tuple[str, int]:
    data = msgspec.json.encode(document)
    digest = hashlib.sha256(data).hexdigest()
    blob_path(layout, "").mkdir(parents=True, exist_ok=True)
    blob_path(layout, digest).write_bytes(data)
    return digest, len(data)


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _document(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_MAX_DOCUMENT + 1)
    if len(data) > _MAX_DOCUMENT:
        raise ValueError(f"{path.name} is over {_MAX_DOCUMENT} bytes")
    return msgspec.json.decode(data, type=dict[str, Any])


def _blob(layout: Path, digest: Any) -> Path:
    return blob_path(layout, _hex(digest))


def _hex(digest: Any) -> str:
    """Return the digits of ``sha256:…``; they become part of paths, so nothing else may pass."""
    text = str(digest).removeprefix("sha256:")
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{str(digest)[:80]!r} is not a SHA-256 digest")
    return text
