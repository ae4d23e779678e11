import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest

from atoll.network.gateway import resolver, sandbox
from atoll.network.policy import Handler
from integration.network.gateway.harness import NEIGHBOUR, Harness, policy


@pytest.fixture
def public(gateway: Harness) -> Harness:
    gateway.put(policy(allowed=("*.test",), denied=("evil.test",), opened=()))
    return gateway


async def test_an_allowed_name_is_answered_and_pinned(public: Harness) -> None:
    public.name("a.test", "93.184.216.34", "93.184.216.35")
    assert sorted(await public.addresses("A.Test.")) == ["93.184.216.34", "93.184.216.35"]
    found = {(pin.name, pin.address) for pin in public.service.pins("box").pins}
    assert found == {("a.test", "93.184.216.34"), ("a.test", "93.184.216.35")}


@pytest.mark.parametrize("name", ["evil.test", "example.com", "a.test.example.com"])
async def test_a_refused_name_is_asked_of_nobody(public: Harness, name: str) -> None:
    public.name(name, "93.184.216.34")
    answer = await public.ask(name, use_edns=0)
    assert answer.rcode() == dns.rcode.NXDOMAIN
    assert any(isinstance(option, dns.edns.EDEOption) for option in answer.options)
    assert public.names.asked == []
    assert (await public.last("dns")).verdict == "refused"


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "169.254.169.254", "127.0.0.1", "100.100.100.200", "0.0.0.0", "224.0.0.1"],
)
async def test_a_name_for_a_private_address_has_none(public: Harness, address: str) -> None:
    public.name("rebound.test", address)
    assert await public.addresses("rebound.test") == []
    assert public.service.pins("box").pins == []
    public.name("mixed.test", address, "93.184.216.34")
    assert await public.addresses("mixed.test") == ["93.184.216.34"]


async def test_an_alias_counts_for_the_name_that_was_asked(public: Harness) -> None:
    public.names.aliases["a.test"] = "b.example"
    public.name("b.example", "93.184.216.34")
    answer = await public.ask("a.test")
    (rrset,) = answer.answer
    assert rrset.name.to_text() == "a.test."
    assert (public.service.pins("box").pins[0].name) == "a.test"


async def test_an_alias_of_a_denied_name_is_refused(public: Harness) -> None:
    public.names.aliases["a.test"] = "evil.test"
    public.name("evil.test", "93.184.216.34")
    assert await public.addresses("a.test") == []
    assert "alias" in (await public.last("dns")).rule


async def test_an_answer_lives_neither_for_no_time_nor_for_long(public: Harness) -> None:
    public.name("a.test", "93.184.216.34")
    (rrset,) = (await public.ask("a.test")).answer
    assert rrset.ttl == resolver.MIN_TTL


@pytest.mark.parametrize("kind", ["HTTPS", "SVCB", "AAAA"])
async def test_keys_that_hide_names_are_not_answered(public: Harness, kind: str) -> None:
    public.name("a.test", "93.184.216.34")
    answer = await public.ask("a.test", kind)
    assert answer.rcode() == dns.rcode.NOERROR
    assert answer.answer == []
    assert public.names.asked == []


async def test_other_records_are_passed_on(public: Harness) -> None:
    public.names.table["a.test", "TXT"] = ['"text"']
    answer = await public.ask("a.test", "TXT")
    assert answer.answer[0][0].to_text() == '"text"'


@pytest.mark.parametrize("kind", ["ANY", "AXFR", "NULL"])
async def test_questions_for_everything_are_refused(public: Harness, kind: str) -> None:
    assert (await public.ask("a.test", kind)).rcode() == dns.rcode.REFUSED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 11,
        b"ab\x80\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1",
        b"ab" + b"\xff" * 200,
        b"ab\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",
        b"ab\1\0\0\1\0\0\0\0\0\0\x3f" + b"a" * 20,
        b"ab\1\0\0\2\0\0\0\0\0\0\1a\0\0\1\0\1\1b\0\0\1\0\1",
        b"ab\1\0\0\1\0\0\0\0\0\0\3a\0b\0\0\1\0\1",
        b"a" * 2_000,
    ],
)
async def test_no_question_ends_the_resolver(public: Harness, data: bytes) -> None:
    try:
        answer = await public.ask_raw(data, timeout=0.2)
    except TimeoutError:
        pass
    else:
        assert dns.message.from_wire(answer).rcode() != dns.rcode.NOERROR
    public.name("a.test", "93.184.216.34")
    assert await public.addresses("a.test")
    assert all(asked == ("a.test", "A") for asked in public.names.asked)


async def test_strangers_get_no_answer(public: Harness) -> None:
    query = dns.message.make_query("a.test", "A").to_wire()
    with pytest.raises(TimeoutError):
        await public.ask_raw(query, NEIGHBOUR, timeout=0.2)


async def test_questions_have_a_rate(public: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_QUERIES", 0)
    assert (await public.ask("a.test")).rcode() == dns.rcode.SERVFAIL
    assert public.names.asked == []


async def test_a_name_only_a_handler_knows_has_an_invented_address(gateway: Harness) -> None:
    handler = Handler(table="outbound")
    gateway.put(policy(class_by_host={"*.api.test": handler}))
    first = await gateway.addresses("a.api.test")
    second = await gateway.addresses("b.api.test")
    assert first != second
    assert await gateway.addresses("a.api.test") == first
    assert all(one.startswith("198.18.") for one in first + second)
