"""Checkouts of git repositories over HTTP: a caller who goes away ends the clone."""

import secrets

import msgspec
from starlette.requests import Request

from atoll.engine.commands import git_checkout
from atoll.engine.engine import Engine
from atoll.server import addressed, shapes
from atoll.server.answer import Stream
from atoll.wire import ids
from atoll.wire.git import GitCheckoutRequest


async def checkout(engine: Engine, request: Request, wanted: GitCheckoutRequest) -> Stream:
    """Clone a repository; the idempotency key is the id of the clone as a command."""
    sandbox = addressed.sandbox(engine, request)
    key = request.headers.get("idempotency-key")
    operation = ids.check_operation_id(key) if key else secrets.token_hex(16)

    async def run(stream: Stream) -> None:
        done = await git_checkout.checkout(sandbox, wanted, operation)
        await stream.start(200, shapes.JSON)
        await stream.write(msgspec.json.encode(done))
        await stream.end()

    return Stream(run)
