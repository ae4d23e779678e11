"""Folders of the host that stand for buckets in development, by the names of their bindings.

No caller names a folder: the operator's settings do, or programs that hold a lease of a private
engine, for as long as they hold it. Those are the engine's own user.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from atoll.errors import BucketMountError, InvalidMountConfigError


class LocalBuckets:
    """What may be mounted with `local_bucket`.

    Args:
        configured: of the settings.
    """

    def __init__(self, configured: Mapping[str, Path]) -> None:
        self._offers: list[Mapping[str, Path]] = [configured]

    @contextmanager
    def offered(self, folders: Mapping[str, Path]) -> Iterator[None]:
        """Have these folders too, meanwhile."""
        self._offers.append(folders)
        try:
            yield
        finally:
            # By identity: two programs may offer the same.
            self._offers = [offer for offer in self._offers if offer is not folders]

    def __contains__(self, binding: object) -> bool:
        return any(binding in offer for offer in self._offers)

    def find(self, binding: str) -> Path:
        """Return the folder of a binding.

        Raises:
            InvalidMountConfigError: there is no such binding, or two programs mean different ones.
            BucketMountError: its folder is missing.
        """
        folders = {offer[binding] for offer in self._offers if binding in offer}
        if not folders:
            known = ", ".join(sorted({name for offer in self._offers for name in offer})) or "none"
            raise InvalidMountConfigError(
                f"there is no local bucket {binding[:80]!r}; this engine has {known}",
                context={"field": "bucket"},
                suggestion="`atoll dev` offers those of r2_buckets; others are settings:"
                " storage.local_buckets",
            )
        if len(folders) > 1:
            raise InvalidMountConfigError(
                f"two projects have a local bucket {binding!r}", context={"field": "bucket"}
            )
        folder = folders.pop()
        if not folder.is_dir():
            raise BucketMountError(
                f"the folder of the local bucket {binding!r} is missing",
                context={"bucket": binding, "reason": "NoSuchBucket"},
            )
        return folder
