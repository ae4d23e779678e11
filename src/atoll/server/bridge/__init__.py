"""The HTTP bridge of the 0.12 Sandbox SDK, so that clients written for it run unmodified.

Prefix ``/v1``. Routes, statuses, headers and bodies are that product's; `wire.ops` has no part in
it. The only client known here by name is the OpenAI Agents SDK's Cloudflare sandbox, whose tests
stand in `tests/e2e/server/bridge`. What the bridge does is the engine's: nothing here keeps state.
"""
