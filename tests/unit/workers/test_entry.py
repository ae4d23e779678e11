import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.errors import InvalidConfigError
from atoll.workers import Request, entry


def module(tmp_path: Path, text: str) -> object:
    file = tmp_path / "index.py"
    file.write_text(text)
    return entry.import_entry(file)


CLASS = """
from atoll.workers import Response, WorkerEntrypoint
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response(f"{self.env}:{request.method}")
"""
FUNCTION = """
from atoll.workers import Response
async def on_fetch(request, env, ctx):
    return Response(f"{env}:{request.method}")
"""


@pytest.mark.parametrize("text", [CLASS, FUNCTION])
async def test_a_class_and_a_function_answer_the_same(tmp_path: Path, text: str) -> None:
    fetch = entry.find_fetch(module(tmp_path, text), "env", entry.Context())  # type: ignore[arg-type]
    assert await (await fetch(Request("http://h/"))).text() == "env:GET"


@pytest.mark.parametrize(
    "text",
    ["x = 1", "from atoll.workers import WorkerEntrypoint\nclass Default(WorkerEntrypoint): pass"],
)
def test_a_file_without_a_worker_says_what_to_write(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfigError, match="fetch"):
        entry.find_fetch(module(tmp_path, text), None, entry.Context())  # type: ignore[arg-type]


def test_an_asgi_application_is_found(tmp_path: Path) -> None:
    found = module(tmp_path, "app = 'asgi'")
    assert entry.find_app(found) == "asgi"  # type: ignore[arg-type]
    assert entry.find_app(module(tmp_path, CLASS)) is None  # type: ignore[arg-type]


def test_the_entry_can_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_entry.py").write_text("VALUE = 7")
    found = module(tmp_path, "from neighbour_of_entry import VALUE")
    assert found.VALUE == 7  # type: ignore[attr-defined]


async def test_wait_until_lets_work_outlive_the_answer() -> None:
    ctx = entry.Context()
    done = asyncio.Event()

    async def later() -> None:
        await asyncio.sleep(0)
        done.set()

    ctx.wait_until(later())
    assert not done.is_set()
    await ctx.finished()
    assert done.is_set()


CRONS = [
    """
class Default:
    def __init__(self, env, ctx): self.env = env
    async def scheduled(self, event): self.env.append(event.cron)
""",
    "async def scheduled(event, env, ctx): env.append(event.cron)",
    "def on_scheduled(event, env): env.append(event.cron)",
]


@pytest.mark.parametrize("text", CRONS)
async def test_a_handler_of_crons_takes_as_much_as_it_wants(tmp_path: Path, text: str) -> None:
    seen: list[str] = []
    handler = entry.find_scheduled(module(tmp_path, text), seen, entry.Context())  # type: ignore[arg-type]
    assert handler
    await handler(entry.ScheduledEvent("* * * * *", datetime(2024, 1, 1, tzinfo=UTC)))
    assert seen == ["* * * * *"]


def test_a_worker_without_a_handler_of_crons_has_none(tmp_path: Path) -> None:
    assert entry.find_scheduled(module(tmp_path, CLASS), None, entry.Context()) is None  # type: ignore[arg-type]
