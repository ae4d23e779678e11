"""The folder of an engine's image that each Pod gets a copy of: the agent, its interpreter, a loader.

`manifest` starts the agent by paths that are the same for every version, so the loader has a name
that does not tell whose it is.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from atoll.runtime.oci import agent_bundle

LOADER = "loader"


async def lay(target: Path) -> str:
    """Make the folder *target*; return what its content is known by.

    Raises:
        RuntimeNotAvailableError: this interpreter cannot be brought along.
    """
    with tempfile.TemporaryDirectory() as cache:
        bundle = await agent_bundle.build(Path(cache))
        await asyncio.to_thread(shutil.copytree, bundle.path, target, symlinks=True)
        (target / "lib" / LOADER).symlink_to(bundle.loader)
        return bundle.path.name


if __name__ == "__main__":
    asyncio.run(lay(Path(sys.argv[1])))
