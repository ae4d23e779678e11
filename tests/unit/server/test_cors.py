from starlette.datastructures import Headers

from atoll.server import cors

APP = "https://app.example"


def test_no_page_may_call_unless_it_is_configured() -> None:
    assert cors.headers([APP], frozenset()) == {}


def test_a_configured_page_may_and_no_other() -> None:
    allowed = frozenset({APP})
    assert cors.headers([APP], allowed)["access-control-allow-origin"] == APP
    for origins in ([], ["https://evil.example"], [APP, APP], ["null"], [APP + "."]):
        assert cors.headers(origins, allowed) == {"vary": "Origin"}


def test_a_page_never_acts_by_what_the_browser_keeps() -> None:
    assert "access-control-allow-credentials" not in cors.headers([APP], frozenset({APP}))


def test_a_preflight_is_one_that_asks_for_a_method() -> None:
    asks = Headers({"access-control-request-method": "PUT"})
    assert cors.is_preflight("OPTIONS", asks)
    assert not cors.is_preflight("GET", asks)
    assert not cors.is_preflight("OPTIONS", Headers())
