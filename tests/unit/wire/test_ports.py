import msgspec

from atoll.wire.ports import AccessLog, ExposedPort, ExposePort, Visit


def test_durations_are_milliseconds_under_their_plain_name() -> None:
    wanted = msgspec.json.decode(b'{"port": 8080, "expires": 1000}', type=ExposePort)
    assert wanted.expires_ms == 1_000
    assert msgspec.json.encode(wanted) == b'{"port":8080,"expires":1000}'


def test_an_exposed_port_has_the_fields_of_0_12() -> None:
    told = ExposedPort(url="http://x", port=8080, name="app").to_dict()
    assert {"url", "port", "name", "status"} <= told.keys()
    assert told["status"] == "active"


def test_an_access_log_is_its_visits() -> None:
    visit = msgspec.convert(
        {"at": "2026-01-01T00:00:00Z", "method": "GET", "path": "/", "status": 200,
         "visitor": "1.2.3.4", "duration": 5, "received": 0, "sent": 3}, Visit,
    )  # fmt: skip
    assert list(AccessLog(visits=[visit])) == [visit]
