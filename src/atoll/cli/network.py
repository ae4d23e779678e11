"""``atoll network``: what a sandbox may reach, and what was decided. Wakes nothing."""

import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.errors import SandboxNotFoundError
from atoll.wire.egress import NetworkEvent, NetworkPolicy
from atoll.wire.inert import line

Id = Annotated[str, typer.Argument(help="Id of a sandbox.")]
Hosts = list[str]


def network(
    id: Id,
    *,
    allow: Annotated[Hosts, typer.Option(help="Add to its allowed hosts.")] = [],  # noqa: B006
    deny: Annotated[Hosts, typer.Option(help="Add to its denied hosts.")] = [],  # noqa: B006
    remove: Annotated[Hosts, typer.Option(help="Take out of both lists.")] = [],  # noqa: B006
    log: Annotated[bool, typer.Option("--log", help="Print what was decided.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is decided.")
    ] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show or change what a sandbox may reach, or show what was decided."""
    if (log or follow) and (allow or deny or remove):
        raise typer.BadParameter("look at the log apart from a change", param_hint="--log")
    if log or follow:
        connection.run(_log(id, follow, namespace, url, as_json))
        return
    policy = connection.run(_policy(id, allow, deny, remove, namespace, url))
    if as_json:
        print_json(policy)
    else:
        print_table(("What", "Holds"), _rows(policy))


async def _policy(
    id: str, allow: Hosts, deny: Hosts, remove: Hosts, namespace: str, url: str | None
) -> NetworkPolicy:
    import atoll

    async with connection.environment(url) as engine:
        sandbox = atoll.get_sandbox(engine.namespace(namespace), id)
        for host in allow:
            await sandbox.allow_host(host)
        for host in deny:
            await sandbox.deny_host(host)
        before = None
        with suppress(SandboxNotFoundError):  # a change makes one that is not there
            before = await sandbox.network_policy() if remove else None
        for host in remove:
            await sandbox.remove_allowed_host(host)
            await sandbox.remove_denied_host(host)
        policy = await sandbox.network_policy()
    if before and opened(before, policy):
        print("No allowed hosts are left: it reaches all of the internet.", file=sys.stderr)
    return policy


def opened(before: NetworkPolicy, after: NetworkPolicy) -> bool:
    """Tell whether the last allowed host went and nothing else bounds the internet now."""
    return bool(before.allowed_hosts and not after.allowed_hosts and after.enable_internet)


def _rows(policy: NetworkPolicy) -> list[tuple[str, str]]:
    by_host = [f"{host} → {handler}" for host, handler in policy.outbound_by_host.items()]
    return [
        ("Connections", policy.mode),
        ("Internet", "on" if policy.enable_internet else "off"),
        ("Allowed hosts", ", ".join(policy.allowed_hosts)),
        ("Denied hosts", ", ".join(policy.denied_hosts)),
        ("Handlers", ", ".join([*by_host, *filter(None, [policy.outbound])])),
        ("HTTPS opened", "yes" if policy.intercept_https else "no"),
    ]


async def _log(id: str, follow: bool, namespace: str, url: str | None, as_json: bool) -> None:
    import atoll

    async with connection.environment(url) as engine:
        sandbox = atoll.get_sandbox(engine.namespace(namespace), id)
        async with sandbox.network_log(follow=follow) as events:
            async for event in events:
                _print(event, as_json)


def _print(event: NetworkEvent, as_json: bool) -> None:
    if as_json:
        print_json(event)
        return
    when = datetime.fromtimestamp(event.time, UTC)
    where = f"{event.host or event.address}:{event.port}" if event.port else event.host
    request: Any = " ".join(filter(None, (event.method, event.path, str(event.status or ""))))
    words = (f"{when:%H:%M:%S}", event.verdict, event.protocol, where, request, f"({event.rule})")
    print(line(" ".join(filter(None, words))), flush=True)
