"""The asynchronous SDK: source of the blocking one (``tools/unasync.py``).

`transport` sends requests, `operation` follows one command over as many connections as it takes,
`target` is what calls are made on: a sandbox (`sandbox`) or a session of it (`session`), both with
`commands` and `files`. `environment` and `local` are where a caller begins.
"""
