"""The policy of one sandbox: read, changed, prepared for a start, applied to what runs."""

import asyncio
import secrets
from typing import TYPE_CHECKING

import msgspec
import structlog

from atoll.engine.egress import effective, stored
from atoll.engine.egress.logs import LogReader
from atoll.engine.egress.stored import Egress
from atoll.engine.link.link import Endpoint
from atoll.errors import SandboxError
from atoll.network.gateway.protocol import Authority
from atoll.network.policy import SandboxPolicy
from atoll.wire.egress import ChangeNetwork, NetworkPolicy
from atoll.wire.sandbox import SandboxOptions
from atoll.wire.secrets import SecretUse

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

_log = structlog.get_logger(__name__)


def policy(box: "Sandbox") -> SandboxPolicy:
    """Return what holds for *box*; its record was read."""
    return box.shared.lifecycle.egress.policy(
        (box.namespace, box.id),
        _own(box),
        box.defaults.egress,
        internet=box.wanted.enable_internet is not False,
        secrets=box.shared.secrets.resolved(box.namespace, uses(box), _own(box).placeholders),
    )


def uses(box: "Sandbox") -> dict[str, SecretUse]:
    """Return the secrets that a sandbox is to have, by variable; text of its own is above its class."""
    own = box.wanted.env or {}
    inherited = {name: use for name, use in box.defaults.secrets.items() if name not in own}
    return inherited | (box.wanted.secrets or {})


async def change(box: "Sandbox", wanted: ChangeNetwork) -> NetworkPolicy:
    """Change the policy, for what runs too. Creates the record if there is none; starts nothing.

    Raises:
        ValidationFailedError: a pattern is none, or there is no such handler.
        NotSupportedByRuntimeError: this level cannot choose connections.
        ContainerUnavailableError: it is stored, and cannot be put in force now. What runs reaches
            nothing that the new policy closes.
    """
    defaults = box.defaults.egress
    await box.load()
    changed = stored.changed(_own(box), wanted, defaults)
    box.shared.lifecycle.egress.check(
        box.shared.lifecycle.egress.policy(
            (box.namespace, box.id),
            changed,
            defaults,
            internet=box.wanted.enable_internet is not False,
        )
    )
    await box.configure(SandboxOptions())
    record = await box.entry.change(
        lambda old: {"egress": stored.changed(old.egress, wanted, defaults)}
    )
    await box.shared.store.events.add(record, "network", effective.shown(policy(box)).mode)
    if box.endpoint:
        await apply(box, box.endpoint)
    return effective.shown(policy(box))


async def prepare(box: "Sandbox") -> Authority | None:
    """Return the authority that the next start of *box* is to trust, made if it has none."""
    await _place(box)
    if not effective.opens_tls(policy(box)):
        return None
    if made := _own(box).authority:
        return made
    from atoll.network.gateway import certificates  # cryptography: 50 ms that most never need

    authority = await asyncio.to_thread(certificates.new_authority, f"Atoll sandbox {box.id}")
    record = await box.entry.change(
        lambda old: {
            "egress": msgspec.structs.replace(
                old.egress, authority=old.egress.authority or authority
            )
        }
    )
    return record.egress.authority


async def _place(box: "Sandbox") -> None:
    """Give each secret of *box* what stands for it inside."""
    missing = uses(box).keys() - _own(box).placeholders.keys()
    if missing:
        made = {name: f"atoll_secret_{secrets.token_hex(20)}" for name in sorted(missing)}
        await box.entry.change(lambda old: {"egress": _with(old.egress, made)})


def _with(old: Egress, made: dict[str, str]) -> Egress:
    return msgspec.structs.replace(old, placeholders=made | old.placeholders)


async def apply(box: "Sandbox", endpoint: Endpoint) -> None:
    """Have the policy in force for what runs; raise as `change`."""
    authority = await prepare(box)
    await box.shared.lifecycle.egress.enforce(endpoint.host_ref, policy(box), authority)


def log_reader(box: "Sandbox", after: str) -> LogReader:
    """Return a reader of what was decided for *box*; raise as `LogReader`."""
    return box.shared.lifecycle.egress.log_reader((box.namespace, box.id), after)


async def adopt(box: "Sandbox", endpoint: Endpoint) -> None:
    """Tell the gateway of a sandbox that runs already. What the kernel holds goes on until then."""
    try:
        await apply(box, endpoint)
    except SandboxError as error:
        _log.warning("a policy is not in force yet", sandbox=box.id, error=str(error))


def _own(box: "Sandbox") -> Egress:
    return box.record.egress if box.record else Egress()
