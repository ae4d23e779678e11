"""The worker host: runs a user's Worker project in a process of its own, beside the engine.

A project is a folder with `wrangler.jsonc` and a Python entry. It speaks to the engine through
the SDK like every other client, so a Worker can be reloaded or crash without touching a sandbox.
"""

from atoll.workers.entry import WorkerEntrypoint
from atoll.workers.http import URL, Headers, Request, Response
from atoll.workers.middleware import PreviewMiddleware, preview_app

__all__ = [
    "URL",
    "Headers",
    "PreviewMiddleware",
    "Request",
    "Response",
    "WorkerEntrypoint",
    "preview_app",
]
