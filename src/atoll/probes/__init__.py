"""Proofs of isolation on the host they run on: what hostile code would try, and what came of it.

`catalogue` is the table; `atoll doctor --probe` and ``tests/security`` run the same functions.
Below `inside` is what a sandbox is given to run; below `outside` what a caller, a visitor or an
agent that was taken over tries, by the engine's own interfaces. Nothing here can weaken a
sandbox: that a probe can fail is shown by tests, which weaken theirs.
"""
