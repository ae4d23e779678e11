from collections.abc import Iterator
from io import BytesIO

import pytest

import atoll
from integration.services import Here, running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with running(tmp_path_factory.mktemp("service") / "state") as found:
        yield found


@pytest.mark.parametrize("body", ["text", b"text", BytesIO(b"text"), iter([b"te", b"xt"])])
async def test_every_kind_of_body_arrives(here: Here, body: object) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        answer = await box.fetch("/", port=here.port, method="POST", body=body)
        assert (await answer.json())["size"] == 4


async def test_text_and_errors_of_json(here: Here) -> None:
    async with atoll.connect(here.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "box")
        answer = await box.fetch("/stream", port=here.port)
        with pytest.raises(ValueError, match="Expecting value"):
            await answer.json()
        assert "piece 2" in await (await box.fetch("/stream", port=here.port)).text()
