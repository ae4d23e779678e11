"""Commands by the unmodified client of the OpenAI Agents SDK, and by plain HTTP."""

import asyncio

import httpx2
import pytest
from agents.sandbox.errors import ExecTransportError
from agents.sandbox.session import SandboxSession


async def test_a_command_has_exact_output_and_its_own_exit_code(box: SandboxSession) -> None:
    script = r"printf 'a\0\377\r\nb'; printf oops >&2; exit 7"
    result = await box.exec("bash", "-c", script, shell=False)
    assert (result.stdout, result.stderr, result.exit_code) == (b"a\0\xff\r\nb", b"oops", 7)


async def test_words_reach_the_program_as_they_are(box: SandboxSession) -> None:
    words = ["a b", "$HOME", "it's", "line\nbreak", "*", "ä", "", "-n", "a=b", "\\", "`x`"]
    result = await box.exec("printf", "[%s]", *words, shell=False)
    assert result.stdout == "".join(f"[{word}]" for word in words).encode()


async def test_a_program_that_is_missing_is_a_result(box: SandboxSession) -> None:
    result = await box.exec("no-such-program", shell=False)
    assert result.exit_code == 127
    assert b"no-such-program" in result.stderr


async def test_large_output_arrives_whole(box: SandboxSession) -> None:
    result = await box.exec("head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert (len(result.stdout), result.stderr) == (20_000_000, b"end\n")


async def test_a_time_limit_ends_the_whole_tree_and_is_an_error(box: SandboxSession) -> None:
    with pytest.raises(ExecTransportError) as caught:
        await box.exec("sleep 600 & sleep 600", timeout=1)
    assert "command timed out after 1000 ms" in str(caught.value.__cause__)
    left = await box.exec("pgrep -c sleep || true")
    assert left.stdout == b"0\n"


async def test_a_caller_that_leaves_ends_its_command(box: SandboxSession) -> None:
    running = asyncio.create_task(box.exec("sleep", "600", shell=False))
    while b"1" not in (await box.exec("pgrep -xc sleep || true")).stdout:
        await asyncio.sleep(0.05)
    running.cancel()
    while b"0" not in (await box.exec("pgrep -xc sleep || true")).stdout:
        await asyncio.sleep(0.05)


async def test_a_session_keeps_the_shells_state_and_without_one_nothing_is_kept(
    http: httpx2.AsyncClient,
) -> None:
    url = f"/sandbox/{(await http.post('/sandbox')).json()['id']}"

    async def shown(*argv: str, **headers: str) -> str:
        return (await http.post(url + "/exec", json={"argv": argv}, headers=headers)).text

    assert (await shown("cd", "/tmp", **{"Session-Id": "s.1"})).endswith('{"exit_code":0}\n\n')
    assert "data: L3RtcAo=\n" in await shown("pwd", **{"Session-Id": "s.1"})
    assert "data: L3dvcmtzcGFjZQo=\n" in await shown("pwd", **{"Session-Id": "other"})
    assert "data: L3dvcmtzcGFjZQo=\n" in await shown("pwd")
    assert (await http.delete(url)).status_code == 204


async def test_a_directory_outside_the_workspace_is_forbidden(http: httpx2.AsyncClient) -> None:
    id = (await http.post("/sandbox")).json()["id"]
    answer = await http.post(f"/sandbox/{id}/exec", json={"argv": ["pwd"], "cwd": "../etc"})
    assert (answer.status_code, answer.json()) == (
        403,
        {"error": "cwd must resolve to a location within /workspace", "code": "invalid_request"},
    )
    answer = await http.post(f"/sandbox/{id}/exec", json={"argv": ["pwd"], "cwd": "none"})
    assert (answer.status_code, answer.json()["code"]) == (502, "exec_transport_error")
    assert (await http.delete(f"/sandbox/{id}")).status_code == 204
