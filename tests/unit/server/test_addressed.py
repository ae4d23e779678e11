from typing import Any, cast

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.server import addressed


class Lookup:
    def sandbox(self, namespace: str, id: str) -> tuple[str, str]:
        return namespace, id


def test_the_path_names_namespace_and_id() -> None:
    request = Request({"type": "http", "path_params": {"namespace": "N", "id": "box"}})
    found: Any = addressed.sandbox(cast("Engine", Lookup()), request)
    assert found == ("N", "box")
