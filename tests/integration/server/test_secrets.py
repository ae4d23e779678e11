import httpx2

from integration.server.conftest import BOX

SECRETS = BOX.partition("/sandboxes")[0] + "/secrets"
VALUE = "the-value-of-it"


async def test_a_value_goes_in_and_never_comes_out(client: httpx2.AsyncClient) -> None:
    body = {"value": VALUE, "hosts": ["API.test"]}
    kept = await client.put(SECRETS + "/KEY", json=body)
    assert (kept.status_code, kept.json()["hosts"]) == (200, ["api.test"])
    listed = await client.get(SECRETS)
    assert [one["name"] for one in listed.json()["secrets"]] == ["KEY"]
    audit = await client.get("/v2/audit")
    for answer in (kept, listed, audit):
        assert VALUE not in answer.text
    assert "put_secret" in audit.text
    assert (await client.delete(SECRETS + "/KEY")).status_code == 200
    gone = await client.delete(SECRETS + "/KEY")
    assert (gone.status_code, gone.json()["code"]) == (404, "SECRET_NOT_FOUND")


async def test_a_value_that_is_refused_is_not_repeated(client: httpx2.AsyncClient) -> None:
    for body in ({"value": VALUE, "hosts": ["http://a"]}, {"value": [VALUE]}, {"valeu": VALUE}):
        answer = await client.put(SECRETS + "/KEY", json=body)
        assert answer.status_code == 400
        assert VALUE not in answer.text
