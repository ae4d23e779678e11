import dns.name
import pytest
from dns.rdatatype import RdataType

from atoll.network.gateway.nameservers import Nameservers, Unanswered
from integration.network.gateway.harness import Names

NAME = dns.name.from_text("www.example.test")


@pytest.mark.parametrize("odd", ["lower_case", "truncate"])
async def test_an_answer_that_may_be_forged_or_is_cut_is_asked_for_again_by_tcp(odd: str) -> None:
    names = Names()
    names.table["www.example.test", "A"] = ["192.0.2.1"]
    setattr(names, odd, True)
    async with names.served():
        answer = await Nameservers((f"127.0.0.1#{names.port}",)).ask(NAME, RdataType.A)
    assert answer.answer[0][0].to_text() == "192.0.2.1"
    assert len(names.asked) == 2


async def test_the_next_one_is_asked_when_one_is_not_there() -> None:
    names = Names()
    names.table["www.example.test", "A"] = ["192.0.2.1"]
    async with names.served():
        asked = Nameservers(("127.0.0.1#1", f"127.0.0.1#{names.port}"))
        assert (await asked.ask(NAME, RdataType.A)).answer


async def test_without_any_there_is_no_answer() -> None:
    with pytest.raises(Unanswered):
        await Nameservers(()).ask(NAME, RdataType.A)
