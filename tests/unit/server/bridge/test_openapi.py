from atoll.server.bridge.openapi import PATHS, built
from atoll.server.bridge.routes import TABLE


def test_the_document_has_every_route_and_no_other() -> None:
    routes = {(one.op.method.lower(), one.op.path.replace(":path", "")) for one in TABLE}
    told = {(method, path) for path, methods in PATHS.items() for method in methods}
    assert told == routes


def test_every_place_in_a_path_is_a_parameter() -> None:
    exec = built()["paths"]["/v1/sandbox/{id}/exec"]["post"]
    assert [(one["name"], one["in"]) for one in exec["parameters"]] == [
        ("id", "path"),
        ("Session-Id", "header"),
    ]
