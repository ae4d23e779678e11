"""The Python SDK: always a client of an engine, asynchronous and blocking with the same names.

`_async` is the source; `_sync` is generated from it by ``tools/unasync.py`` and committed.
What can be decided without I/O lives in `_shared` (requests and answers), `_stream` (frames and
events) and `_sse`; `_aio` and its blocking twin `_io` are the only places that touch the clock,
locks, threads, files of the host and the process environment.
"""
