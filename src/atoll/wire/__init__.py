"""What crosses a process boundary: structs, the table of operations, frames. No I/O here.

`frames` and `agent` are carried into every sandbox and import the standard library only; the
rest is msgspec structs shared by SDK, server and engine. `http1` is for who forwards requests:
previews and the egress gateway.
"""
