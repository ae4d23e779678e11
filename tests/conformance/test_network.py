"""What a sandbox may reach, as a caller sees it. Needs no internet: what is refused is refused here."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

import atoll
import atoll.sync
from atoll import errors

FILTERED = {"container", "gvisor", "bwrap"}
"""Levels whose sandboxes have a network that the engine filters."""

FETCH = "curl -s -m 10 -o /dev/null -w '%{http_code}' --noproxy '*' "


async def test_a_list_is_kept_or_refused_with_the_reason(
    sandbox: atoll.Sandbox, level: str
) -> None:
    """A level that cannot hold a sandbox to a list must not take one."""
    if level not in FILTERED:
        with pytest.raises(errors.NotSupportedByRuntimeError):
            await sandbox.set_allowed_hosts(["*.test"])
        return
    policy = await sandbox.set_allowed_hosts(["*.Test."])
    assert (policy.mode, policy.allowed_hosts) == ("gateway", ["*.test"])
    assert (await sandbox.network_policy()) == policy
    assert (await sandbox.set_allowed_hosts([])).mode == "direct"


async def test_what_is_no_host_is_refused(sandbox: atoll.Sandbox) -> None:
    for host in ("http://a.test", "a.test:80", "10.*", "", "a\0b"):
        with pytest.raises(errors.ValidationFailedError):
            await sandbox.allow_host(host)
    with pytest.raises(errors.ValidationFailedError):
        await sandbox.set_outbound_handler("no such handler")


async def _first(events: atoll.NetworkLog, count: int) -> AsyncIterator[atoll.NetworkEvent]:
    for _ in range(count):
        yield await anext(events)


async def _until(
    happened: AsyncIterator[atoll.SandboxEvent], type: str
) -> AsyncIterator[atoll.SandboxEvent]:
    async for event in happened:
        yield event
        if event.type == type:
            return


@pytest.mark.beyond_pods("hosts, handlers and secrets")
@pytest.mark.container
async def test_a_list_holds_at_once_and_over_a_sleep(sandbox: atoll.Sandbox, level: str) -> None:
    if level not in {*FILTERED, "kubernetes"}:
        pytest.skip("this level does not choose connections")
    await sandbox.exec("true")
    await sandbox.set_allowed_hosts(["allowed.test"])
    fetch = FETCH + "http://203.0.113.7/"
    assert (await sandbox.exec(fetch)).stdout == "520"
    await sandbox.stop()
    assert (await sandbox.exec(fetch)).stdout == "520"
    async with sandbox.network_log(follow=True) as told:  # each is told just after its answer
        refused = [event async for event in _first(told, 2)]
    assert {(e.protocol, e.verdict, e.address, e.rule) for e in refused} == {
        ("http", "refused", "203.0.113.7", "not in allowed_hosts")
    }


@pytest.mark.beyond_pods("hosts, handlers and secrets")
@pytest.mark.container
async def test_decisions_are_followed(sandbox: atoll.Sandbox, level: str) -> None:
    if level not in {*FILTERED, "kubernetes"}:
        pytest.skip("this level does not choose connections")
    await sandbox.deny_host("denied.test")
    async with sandbox.network_log(follow=True) as told:
        await sandbox.exec(FETCH + "http://denied.test/")
        event = await anext(told)
        assert (event.protocol, event.verdict) == ("dns", "refused")
        assert event.rule == "denied_hosts: denied.test"
    async with aclosing(sandbox.events(follow=True)) as happened:
        reasons = [one.reason async for one in _until(happened, "refused")]
    assert reasons[-1] == "denied.test: denied_hosts: denied.test"
    assert (await sandbox.metrics()).refused >= 1


@pytest.mark.beyond_pods("hosts, handlers and secrets")
@pytest.mark.container
async def test_the_blocking_client_has_it_too(url: str, sandbox_id: str, level: str) -> None:
    if level not in {*FILTERED, "kubernetes"}:
        pytest.skip("this level does not choose connections")
    with atoll.sync.connect(url) as env:
        sandbox = atoll.sync.get_sandbox(env.Sandbox, sandbox_id)
        try:
            assert sandbox.deny_host("*").mode == "gateway"
            assert sandbox.exec(FETCH + "http://203.0.113.7/").stdout == "520"
            with sandbox.network_log(follow=True) as told:
                assert next(told).verdict == "refused"
        finally:
            sandbox.destroy()


async def test_a_secret_is_a_placeholder_inside_or_refused(
    url: str, sandbox: atoll.Sandbox, level: str
) -> None:
    """A level that cannot put it in must not start a sandbox that counts on it."""
    async with atoll.connect(url) as env:
        await env.Sandbox.secrets.put("CONFORMANCE", "the-value", hosts=["*.test"])
        using = {"KEY": atoll.secret("CONFORMANCE", hosts=["api.test"])}
        box = atoll.get_sandbox(env.Sandbox, sandbox.id, env=using)
        if level in FILTERED:
            assert (await box.exec("echo $KEY")).stdout.startswith("atoll_secret_")
        else:
            with pytest.raises(errors.NotSupportedByRuntimeError):
                await box.exec("true")
        await env.Sandbox.secrets.delete("CONFORMANCE")


async def test_without_internet_nothing_is_reached_or_it_is_refused(
    url: str, sandbox: atoll.Sandbox, level: str
) -> None:
    """A level that cannot cut a sandbox off must not start one that counts on it."""
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, sandbox.id, enable_internet=False)
        if level in {"fake", "fake-tcp", "kubernetes"}:
            with pytest.raises(errors.NotSupportedByRuntimeError):
                await box.exec("true")
            return
        fetch = "import socket; socket.create_connection(('203.0.113.7', 80), 3)"
        result = await box.exec(["python3", "-c", fetch])
        assert result.exit_code == 1
        assert "[Errno " in result.stderr  # at once, not after the timeout
