"""The package cache: a private volume where pip, npm and uv keep what they download.

These tools trust what is in their caches, so it must never hold what another sandbox put there.
Checksums are no way to tell: pip takes wheels that it built itself, and pages of an index, as they
are. So each start has a copy of its own, and what all begin with changes only when somebody who may
use the API publishes a copy, that of a sandbox which ran nothing but the fill (`atoll cache fill`).
"""

from typing import Final

from atoll.engine.storage.volume_table import Stored
from atoll.errors import ValidationFailedError
from atoll.wire.volumes import PACKAGE_CACHE

ENV: Final = {
    "PIP_CACHE_DIR": f"{PACKAGE_CACHE}/pip",
    "PIP_FIND_LINKS": f"{PACKAGE_CACHE}/wheels",
    "npm_config_cache": f"{PACKAGE_CACHE}/npm",
    "UV_CACHE_DIR": f"{PACKAGE_CACHE}/uv",
    "UV_LINK_MODE": "copy",  # the cache is another mount: links across are not possible
}
"""Where the tools look for it. The sandbox's own variables win.

pip keeps in its own cache only what an index allows it to; of equal versions it takes the wheel of
a folder of links first, and downloads nothing.
"""


def check(volume: Stored) -> None:
    """Refuse a volume in which one sandbox could leave something for another.

    Raises:
        ValidationFailedError: it is neither private nor read-only.
    """
    if not volume.private and not volume.read_only:
        raise ValidationFailedError(
            f"volume {volume.name!r} is no package cache: what one sandbox writes, others would run",
            context={"field": "packageCache", "volume": volume.name},
            suggestion="use one made with private=True, or by `atoll cache fill`",
        )
