"""HTTP: the table of operations becomes routes; errors become envelopes in one place.

`main` opens the engine and its sockets, `app` routes, `exec` and `files` stream, `auth` decides
who may call, `lease` serves `atoll.local()`.
"""
