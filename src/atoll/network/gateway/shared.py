"""What all connections of the gateway have in common: handed to each, so that none reaches for it."""

from collections.abc import Awaitable, Callable

import dns.exception
import dns.name
from dns.rdatatype import RdataType

from atoll.host.budget import Budget
from atoll.network import hosts
from atoll.network.gateway import held, tunnel
from atoll.network.gateway.certificates import Certificates
from atoll.network.gateway.dialing import Dialer
from atoll.network.gateway.nameservers import Nameservers, Unanswered
from atoll.network.gateway.protocol import Call, HandlerAnswer, Noticed
from atoll.network.policy import SandboxPolicy, closed_range


class Shared:
    """Of one gateway.

    Args:
        dialer: makes connections.
        certificates: TLS of our own.
        nameservers: who knows names.
        ask_handler: has a Worker's handler called; never raises but when cancelled.
        notice: tells the engine of a refusal.

    Attributes:
        bodies: what all sandboxes hold of bodies for handlers.
        pieces: likewise of large pieces in tunnels.
    """

    def __init__(
        self,
        dialer: Dialer,
        certificates: Certificates,
        nameservers: Nameservers,
        ask_handler: Callable[[Call], Awaitable[HandlerAnswer]],
        notice: Callable[[Noticed], None],
    ) -> None:
        self.dialer = dialer
        self.certificates = certificates
        self.nameservers = nameservers
        self.ask_handler = ask_handler
        self.notice = notice
        self.bodies = Budget(held.MAX_OF_ALL)
        self.pieces = Budget(tunnel.MAX_OF_ALL)

    async def find(self, policy: SandboxPolicy, host: str) -> str:
        """Return an address of *host* for a request that a handler lets out.

        Raises:
            OSError: there is none that may be connected to.
        """
        address = hosts.address(host)
        found = [str(address)] if address else await self._resolved(host)
        why = "the name has no address"
        for text in found:
            target = hosts.address(text)
            why = closed_range(policy, target) if target else why
            if not why:
                return text
        raise OSError(why)

    async def _resolved(self, host: str) -> list[str]:
        try:
            answer = await self.nameservers.ask(dns.name.from_text(host), RdataType.A)
            rrset = answer.resolve_chaining().answer
        except (Unanswered, dns.exception.DNSException) as error:
            raise OSError("no resolver answered") from error
        return [record.to_text() for record in rrset or ()]
