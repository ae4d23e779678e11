"""A clone is a command of the sandbox; its whole story is tests/conformance/test_git.py."""

from typing import Any

import pytest

from atoll import errors
from atoll.engine.commands import git_checkout
from atoll.engine.engine import Engine
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.git import GitCheckoutRequest
from integration.engine.scripted import Peer, Script, World

REQUEST = GitCheckoutRequest(url="https://u:s3cret@h/r.git", depth=1, session="s")


def git(seen: list[dict[str, Any]], stderr: bytes = b"", **exited: Any) -> Script:
    async def script(peer: Peer, header: dict[str, Any]) -> None:
        stdin = b""
        while header["stdin"] and (frame := await peer.next()).kind == Kind.STDIN:
            stdin += frame.payload
        seen.append({**header, "fed": stdin})
        out = b"/w/r\nabc\nmain\n" if "rev-parse" in header["command"] else b""
        await peer.send(Kind.STARTED, {"pid": 7})
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, out))
        await peer.raw(frames.encode_output(Kind.STDERR, 1, len(out), stderr))
        await peer.send(Kind.EXITED, {"exit_code": 0} | exited)

    return script


async def test_credentials_are_fed_and_never_part_of_the_command(
    engine: Engine, world: World
) -> None:
    seen: list[dict[str, Any]] = []
    world.runtime.scripts["exec"] = git(seen)
    done = await git_checkout.checkout(engine.sandbox("N", "box"), REQUEST, "op-1")
    assert (done.url, done.path, done.commit, done.branch) == (
        "https://h/r.git", "/w/r", "abc", "main",
    )  # fmt: skip
    clone, inspect = seen
    assert (clone["id"], clone["cancel_on_drop"], clone["session"]) == ("op-1", True, "s")
    assert (clone["timeout"], clone["fed"]) == (600.0, b"username=u\npassword=s3cret\n")
    assert "s3cret" not in str({**clone, "fed": b""})
    assert (inspect["stdin"], inspect["session"]) == (False, "s")


@pytest.mark.parametrize(
    ("stderr", "exited", "kind"),
    [
        (b"fatal: unable to access 'https://u:s3cret@h/': Could not resolve host: h",
         {"exit_code": 128}, errors.GitNetworkError),
        (b"", {"exit_code": 143, "timed_out": True}, errors.TimeoutError),
        (b"", {"exit_code": 143, "cancelled": True}, errors.OperationInterruptedError),
    ],
)  # fmt: skip
async def test_failures_are_typed_and_show_no_secret(
    engine: Engine, world: World, stderr: bytes, exited: dict[str, Any], kind: type[Exception]
) -> None:
    world.runtime.scripts["exec"] = git([], stderr, **exited)
    with pytest.raises(kind) as caught:
        await git_checkout.checkout(engine.sandbox("N", "box"), REQUEST, "op-1")
    assert isinstance(caught.value, errors.SandboxError)
    assert "s3cret" not in str(caught.value.to_wire())


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (errors.CommandNotFoundError("no such command: sh"), errors.CommandNotFoundError),
        (errors.SessionNotFoundError("no session s3cret"), errors.SessionNotFoundError),
    ],
)
async def test_an_error_of_the_agent_is_passed_on(
    engine: Engine, world: World, told: errors.SandboxError, kind: type[errors.SandboxError]
) -> None:
    async def refuse(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, told.to_wire())

    world.runtime.scripts["exec"] = refuse
    with pytest.raises(kind) as caught:
        await git_checkout.checkout(engine.sandbox("N", "box"), REQUEST, "op-1")
    assert "s3cret" not in caught.value.message
    if kind is errors.CommandNotFoundError:
        assert caught.value.message == "the image has no git"
