"""Filling the volumes where pip, npm and uv of sandboxes find what they download."""

import secrets
from collections.abc import Sequence
from contextlib import suppress

from atoll.errors import VolumeNotFoundError
from atoll.sdk import _arguments
from atoll.sdk._async.sandbox import Sandbox
from atoll.sdk._async.target import Address
from atoll.sdk._async.transport import Transport
from atoll.sdk._async.volumes import Volume, VolumeShelf
from atoll.wire.base import Duration
from atoll.wire.volumes import PACKAGE_CACHE, VolumeInfo

_WHEELS = f"{PACKAGE_CACHE}/wheels"

# No code of a package runs while they fetch: it could put what it likes into the cache.
_FETCH = {
    "pip": f"python3 -m pip download -q --only-binary :all: -d {_WHEELS} --",
    "npm": "npm install --no-save --ignore-scripts --prefix /tmp/fetched --",
    "uv": "uv pip install -q --only-binary :all: --target /tmp/fetched --",
}


class PackageCaches:
    """Package caches: ``env.package_caches``. Sandboxes use one by the option `package_cache`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fill(
        self,
        name: str,
        *,
        pip: Sequence[str] = (),
        npm: Sequence[str] = (),
        uv: Sequence[str] = (),
        size: int | str = "2GB",
        image: str | None = None,
        timeout: Duration = "15m",
        namespace: str = "Sandbox",
    ) -> VolumeInfo:
        """Add packages, with all they need, to a cache, which is made when there is none.

        Without packages it only makes one.

        A fresh sandbox that begins with the cache downloads them, and its copy becomes the cache in
        one step; sandboxes have it from their next start on. No code of a package is run: of pip and
        uv only wheels are taken.

        Args:
            name: of the cache, a private volume.
            pip: requirements, like "requests==2.32.3".
            npm: package specs, like "left-pad@1.3.0".
            uv: requirements, for uv's own cache; its program must be in the image.
            size: limit of a new cache: bytes, or text like "2GB".
            image: of the sandbox that downloads: what its programs fetch, those of others find.
            timeout: of each of the tools.
            namespace: whose sandboxes may use it.

        Raises:
            CommandFailedError: a package cannot be had; the cache is as it was.
            ResourceBusyError: another fill ended meanwhile; fill again.
            FileExistsError: there is a volume of this name that is no package cache.
        """
        given = {"pip": pip, "npm": npm, "uv": uv}
        wanted = {tool: _arguments.listed(tool, names) for tool, names in given.items()}
        volume = await self._cache(name, size, namespace)
        if not any(wanted.values()):
            return await volume.info()
        options = _arguments.sandbox_options(package_cache=name, image=image)
        address = Address(self._transport, namespace, f"fill-{secrets.token_hex(6)}", options)
        filler = Sandbox(address)
        try:
            for tool, packages in wanted.items():
                if packages:
                    await filler.exec(
                        [*_FETCH[tool].split(), *packages], timeout=timeout, check=True
                    )
            return await volume.publish(filler.id)
        finally:
            await filler.destroy()

    async def _cache(self, name: str, size: int | str, namespace: str) -> Volume:
        volume = Volume(self._transport, namespace, name)
        with suppress(VolumeNotFoundError):
            if (await volume.info()).private:
                return volume
        shelf = VolumeShelf(self._transport)
        made = await shelf.create(name, size=size, private=True, namespace=namespace)
        await made.make_dir("wheels")  # pip complains of a folder that is not there
        return made
