import asyncio
from pathlib import Path

import pytest

from atoll.network.gateway.keeper import Keeper
from atoll.network.gateway.protocol import Call, HandlerAnswer, Unanswered

pytestmark = pytest.mark.e2e

UID = 0x6FFF_FFF1


async def no_handler(_: Call) -> HandlerAnswer:
    return Unanswered(reason="none")


async def test_the_gateway_is_nobody_and_sees_its_logs_only(tmp_path: Path) -> None:
    """Whoever takes it over has no file of the host, no capability and no way to get one."""
    keeper = Keeper(tmp_path / "egress", (), no_handler, lambda _: None, uid=UID)
    await keeper.open()
    try:
        pid = (await keeper.status()).pid
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert status["Uid"].split() == status["Gid"].split() == [str(UID)] * 4
        assert status["Groups"].strip() == ""
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0
        assert status["NoNewPrivs"] == "1"
        mounts = Path(f"/proc/{pid}/mounts").read_text().splitlines()
        assert [line.split()[1] for line in mounts] == ["/", "/keys"]
        assert all("nosuid,nodev,noexec" in line for line in mounts)
        seen = await asyncio.to_thread(lambda: sorted(Path(f"/proc/{pid}/root").iterdir()))
        assert [path.name for path in seen] == ["keys"]
    finally:
        await keeper.close(stop=True)
