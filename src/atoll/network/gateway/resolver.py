"""Answers names for a sandbox: those its policy lets out, and remembers what it answered.

* Addresses are flattened: whatever aliases there are, they are answered for the name asked for.
* Addresses nobody may be connected to are left out, whoever's name they are given for.
* HTTPS and SVCB are empty: their keys hide from us which name a connection is for.
* Other records are passed on for names that are let out.
* A refused name does not exist, with the reason as an extended error (RFC 8914, "blocked").
"""

import time
from typing import TYPE_CHECKING, cast

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType

from atoll.network import hosts
from atoll.network.gateway.nameservers import Nameservers, Unanswered
from atoll.network.gateway.protocol import Decision
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.policy import Outbound, Verdict, closed_range

if TYPE_CHECKING:
    from dns.rdtypes.IN.A import A

MAX_QUERY = 1_232
"""Bytes of a question. A name has 255; the rest are options nobody needs."""

MIN_TTL, MAX_TTL = 5, 300
"""Seconds an answer may be kept. Never 0: an address that changes from one question to the next is
how a name is made to mean two servers. Never long: a changed policy is noticed at the next question."""

INVENTED_TTL = 60

MAX_ADDRESSES = 32
"""Addresses of one answer."""

_EMPTY = frozenset({RdataType.HTTPS, RdataType.SVCB})
_NEVER = frozenset({RdataType.ANY, RdataType.AXFR, RdataType.IXFR, RdataType.OPT, RdataType.NULL})


class Resolver:
    """Answers the questions of all sandboxes.

    Args:
        nameservers: who is asked for names that are let out.
    """

    def __init__(self, nameservers: Nameservers) -> None:
        self.nameservers = nameservers

    async def answer(self, sandbox: Sandbox, data: bytes, limit: int | None = None) -> bytes | None:
        """Return the answer to a question, or None where there should be none.

        Args:
            sandbox: who asks.
            data: the question.
            limit: bytes of the answer; None: what the question allows by UDP.
        """
        query = parsed(data)
        if not isinstance(query, dns.message.Message):
            return query
        if limit is None:
            limit = min(max(query.payload, 512), MAX_QUERY) if query.edns >= 0 else 512
        reply = dns.message.make_response(query, recursion_available=True, our_payload=MAX_QUERY)
        if rcode := _fault(query):
            reply.set_rcode(rcode)
        elif not sandbox.may_ask():
            reply.set_rcode(dns.rcode.SERVFAIL)
        else:
            sandbox.queries += 1
            try:
                await self._decided(sandbox, reply)
            finally:
                sandbox.queries -= 1
        return _wire(reply, limit)

    async def _decided(self, sandbox: Sandbox, reply: dns.message.Message) -> None:
        begun = time.time()
        question = reply.question[0]
        name = question.name.to_text(omit_final_dot=True)
        verdict = sandbox.decide(Outbound(protocol="dns", host=name))
        outcome, rule, addresses = "allowed", verdict.rule, ""
        if verdict.action == "refuse":
            outcome = "refused"
            _refuse(reply, "not allowed by this sandbox's policy")
        elif verdict.action == "handle":
            outcome = "handled"
            addresses = self._invented(sandbox, verdict.host, reply)
        else:
            outcome, rule, addresses = await self._asked(sandbox, verdict, reply)
        sandbox.note(
            Decision(
                time=begun,
                protocol="dns",
                host=(verdict.host or name)[:300],
                address=addresses,
                verdict=outcome,
                rule=rule,
                ms=round((time.time() - begun) * 1_000, 1),
            )
        )

    def _invented(self, sandbox: Sandbox, name: str, reply: dns.message.Message) -> str:
        question = reply.question[0]
        if question.rdtype != RdataType.A:
            return ""
        address = sandbox.invent(name)
        _add(sandbox, name, reply, [address], INVENTED_TTL)
        return address

    async def _asked(
        self, sandbox: Sandbox, verdict: Verdict, reply: dns.message.Message
    ) -> tuple[str, str, str]:
        """Answer by a real resolver; return verdict, rule and addresses for the log."""
        kind = reply.question[0].rdtype
        if kind in _EMPTY or (kind == RdataType.AAAA and not _has_ipv6(sandbox)):
            return "allowed", verdict.rule, ""
        try:
            found = await self.nameservers.ask(dns.name.from_text(verdict.host), kind)
            chain = found.resolve_chaining()
        except Unanswered:
            return self._absent(sandbox, verdict, reply, "no resolver answered")
        except dns.exception.DNSException:
            return self._absent(sandbox, verdict, reply, "the resolver's answer is malformed")
        if denied := _denied_alias(sandbox, found):
            _refuse(reply, "an alias is not allowed by this sandbox's policy")
            return "refused", denied, ""
        if chain.answer is None:
            reply.set_rcode(found.rcode())
            return self._absent(sandbox, verdict, reply)
        ttl = min(max(chain.minimum_ttl, MIN_TTL), MAX_TTL)
        if kind not in {RdataType.A, RdataType.AAAA}:
            reply.answer.append(_renamed(chain.answer, reply.question[0].name, ttl))
            return "allowed", verdict.rule, ""
        return _addressed(sandbox, verdict, reply, chain.answer, ttl)

    def _absent(
        self, sandbox: Sandbox, verdict: Verdict, reply: dns.message.Message, failure: str = ""
    ) -> tuple[str, str, str]:
        """Answer for a name that no resolver knows: a handler may know it all the same."""
        if verdict.handler:
            reply.set_rcode(dns.rcode.NOERROR)
            return "handled", verdict.rule, self._invented(sandbox, verdict.host, reply)
        if failure:
            reply.set_rcode(dns.rcode.SERVFAIL)
            return "failed", failure, ""
        return "allowed", verdict.rule, ""


def parsed(data: bytes) -> dns.message.Message | bytes | None:
    """Return the question; or the answer to what is none, if there should be one."""
    if len(data) < 12 or data[2] & 0x80:
        return None
    malformed = data[:2] + bytes([0x80 | data[2] & 0x79, 0x80 | dns.rcode.FORMERR]) + bytes(8)
    if len(data) > MAX_QUERY:
        return malformed
    try:
        return dns.message.from_wire(data)
    except (dns.exception.DNSException, ValueError, IndexError):
        return malformed


def _fault(query: dns.message.Message) -> dns.rcode.Rcode | None:
    if query.opcode() != dns.opcode.QUERY:
        return dns.rcode.NOTIMP
    if len(query.question) != 1 or query.answer or query.authority:
        return dns.rcode.FORMERR
    question = query.question[0]
    if question.rdclass != dns.rdataclass.IN or question.rdtype in _NEVER:
        return dns.rcode.REFUSED
    return None


def _refuse(reply: dns.message.Message, why: str) -> None:
    reply.set_rcode(dns.rcode.NXDOMAIN)
    if reply.edns >= 0:
        reply.use_edns(0, 0, MAX_QUERY, options=[dns.edns.EDEOption(dns.edns.EDECode.BLOCKED, why)])


def _has_ipv6(sandbox: Sandbox) -> bool:
    return any(":" in address for address in sandbox.policy.addresses)


def _denied_alias(sandbox: Sandbox, found: dns.message.Message) -> str:
    """Return the rule that denies one of the names that the answer goes through."""
    for rrset in found.answer:
        if rrset.rdtype != RdataType.CNAME:
            continue
        for alias in rrset:
            text = cast("A", alias).to_text().removesuffix(".")
            verdict = sandbox.decide(Outbound(protocol="dns", host=text))
            if verdict.rule.startswith("denied_hosts"):
                return f"{verdict.rule} (alias)"
    return ""


def _addressed(
    sandbox: Sandbox,
    verdict: Verdict,
    reply: dns.message.Message,
    rrset: dns.rrset.RRset,
    ttl: int,
) -> tuple[str, str, str]:
    """Answer the addresses that may be connected to."""
    open_ones, why = [], ""
    for record in rrset:
        address = hosts.address(cast("A", record).address)
        reason = "malformed" if address is None else closed_range(sandbox.policy, address)
        if reason or address is None:
            why = why or reason
        else:
            open_ones.append(cast("A", record).address)
    if not open_ones:
        _refuse(reply, f"it has no address but of one kind: {why}")
        return "refused", why, ", ".join(cast("A", record).address for record in rrset)
    _add(sandbox, verdict.host, reply, open_ones[:MAX_ADDRESSES], ttl)
    return "allowed", verdict.rule, ", ".join(open_ones[:MAX_ADDRESSES])


def _add(
    sandbox: Sandbox, name: str, reply: dns.message.Message, addresses: list[str], ttl: int
) -> None:
    """Answer *addresses*, and let the sandbox use them for *name*."""
    question = reply.question[0]
    sandbox.pins.add(name, [str(hosts.address(one)) for one in addresses], ttl, time.monotonic())
    reply.answer.append(
        dns.rrset.from_text_list(question.name, ttl, question.rdclass, question.rdtype, addresses)
    )


def _renamed(rrset: dns.rrset.RRset, name: dns.name.Name, ttl: int) -> dns.rrset.RRset:
    return dns.rrset.from_rdata_list(name, ttl, list(rrset))


def _wire(reply: dns.message.Message, limit: int) -> bytes:
    try:
        return reply.to_wire(max_size=limit)
    except dns.exception.TooBig:
        reply.answer.clear()
        reply.flags |= dns.flags.TC
        return reply.to_wire(max_size=max(limit, 512))
