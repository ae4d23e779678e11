"""Twenty processes that print while their engine is killed: what must be seen of them afterwards."""

import asyncio
import hashlib
from collections.abc import Callable

import atoll

COUNT = 20


def script(number: int) -> str:
    """Print 600 lines alternately to both streams for about 3 s, then exit with *number*."""
    return (
        f"for i in $(seq 300); do echo {number} out $i; echo {number} err $i >&2; "
        f"((i % 10)) || sleep 0.1; done; exit {number}"
    )


def expected(number: int) -> tuple[bytes, bytes]:
    lines = range(1, 301)
    return (
        b"".join(b"%d out %d\n" % (number, i) for i in lines),
        b"".join(b"%d err %d\n" % (number, i) for i in lines),
    )


async def follow(sandbox: atoll.Sandbox, id: str) -> tuple[bytes, bytes, int]:
    """Return the output and exit code as one stream told them; every offset must follow."""
    out, err, at, code = b"", b"", 0, -1
    async for event in sandbox.stream_process_logs(id):
        if isinstance(event, atoll.Stdout | atoll.Stderr):
            assert event.offset == at, f"{id}: {event.offset} after {at}"
            at += len(event.data)
            if isinstance(event, atoll.Stdout):
                out += event.data
            else:
                err += event.data
        elif isinstance(event, atoll.Exited):
            code = event.exit_code
        else:
            assert isinstance(event, atoll.Started), event
    return out, err, code


async def survive(url: str, sandbox_id: str, replace_engine: Callable[[], None]) -> None:
    """Start them, follow them, let *replace_engine* do its worst, compare everything."""
    async with atoll.connect(url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id)
        for n in range(COUNT):
            await sandbox.start_process(script(n), process_id=f"p{n}")
        streams = [asyncio.create_task(follow(sandbox, f"p{n}")) for n in range(COUNT)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(replace_engine)
        for n, (out, err, code) in enumerate(await asyncio.gather(*streams)):
            assert (out, err) == expected(n), _difference(n, out, err)
            assert code == n
        for process in await sandbox.list_processes():
            number = int(process.id[1:])
            assert (process.exit_code, process.reason) == (number, None)
            assert process.status == ("completed" if number == 0 else "failed")
            logs = await process.get_logs()
            assert (logs.stdout_bytes, logs.stderr_bytes) == expected(number)


def _difference(number: int, *found: bytes) -> str:
    digests = [hashlib.sha256(data).hexdigest()[:8] for data in (*found, *expected(number))]
    return f"process {number}: {[len(data) for data in found]} bytes, {digests}"
