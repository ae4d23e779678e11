"""Entry points, required ports and hooks with real containers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import atoll
from atoll.errors import ProcessExitedBeforeReadyError
from integration.workers.project import Project, serving

pytestmark = pytest.mark.e2e

CODE = """
from atoll import Sandbox

class Box(Sandbox):
    entrypoint = "python3 -m http.server 8080 --directory /etc"
    required_ports = [8080]

    async def on_start(self):
        n = (await self.ctx.storage.get("starts") or 0) + 1
        await self.ctx.storage.put("starts", n)
        page = await self.exec("curl -s localhost:8080/hostname")
        await self.write_file("/workspace/seen", page.stdout)

    async def starts(self):
        return await self.ctx.storage.get("starts")
"""


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with serving(tmp_path, CODE, level="container") as served:
        await served.eventually(lambda: served.box().call("starts"), lambda found: found is None)
        yield served


@pytest.mark.timeout(180)
async def test_a_service_answers_before_anybody_uses_the_sandbox_and_after_each_wake(
    project: Project,
) -> None:
    box = project.box()
    for start in (1, 2):
        result = await box.exec("cat /workspace/seen; curl -s localhost:8080/hostname")
        assert result.stdout == "one\none\n"
        assert await box.call("starts") == start
        process = await box.get_process("entrypoint")
        assert process
        assert process.status == "running"
        await box.stop()


@pytest.mark.timeout(180)
async def test_a_thaw_is_no_start(project: Project) -> None:
    box = atoll.get_sandbox(
        project.env.namespace("shop-box"), "one", sleep_mode="freeze", sleep_after=0.2
    )
    await box.exec("true")

    async def frozen() -> bool:
        return (await box.info()).state == "frozen"

    await project.eventually(frozen)
    await box.exec("true")
    assert await box.call("starts") == 1


@pytest.mark.timeout(180)
async def test_an_entry_point_that_ends_is_told_at_once(tmp_path: Path) -> None:
    code = CODE.replace("python3 -m http.server 8080 --directory /etc", "sh -c 'echo why; exit 7'")
    async with serving(tmp_path, code, level="container") as served:
        box = served.box()
        await served.eventually(lambda: box.call("starts"), lambda found: found is None)
        with pytest.raises(ProcessExitedBeforeReadyError) as failed:
            await box.exec("true")
        assert failed.value.context["exit_code"] == 7
        assert "why" in failed.value.context["tail"]
