"""Builds the components an engine works with, in the order they need each other."""

from contextlib import AsyncExitStack

from atoll.engine import bare
from atoll.engine.idranges import IdRanges
from atoll.engine.parts import Parts
from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.fake import FakeRuntime
from atoll.settings import Settings


async def built(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    """Open the components; *stack* closes them again.

    Raises:
        SandboxError: this host lacks something that the default level needs.
    """
    if settings.runtime.default == "fake":
        return _fake(settings)
    raise RuntimeNotAvailableError(
        f"this version has no runtime {settings.runtime.default!r}",
        context={"engine": engine_id, "stack": bool(stack)},
    )


def _fake(settings: Settings) -> Parts:
    layers = settings.storage.state_dir / "layers"
    return Parts(
        images=bare.BareImages(),
        layers=bare.BareLayers(layers),
        roots=bare.BareRoots(layers),
        networks=bare.BareNetworks(),
        ids=IdRanges(settings.runtime.id_base, settings.runtime.id_count),
        runtimes={"fake": FakeRuntime(settings.storage.state_dir / "run")},
    )
