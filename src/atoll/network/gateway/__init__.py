"""The egress gateway: one unprivileged process a node that all TCP and DNS of sandboxes go through.

The packet filter redirects connections of sandboxes that have a policy, and the names all of them
ask for, to the gateway's listeners; the source address says whose they are. The gateway decides by
`atoll.network.policy` and does what was decided: splices, forwards requests, opens TLS, asks a
Worker's handler, puts secrets in. What the engine knows of it is `protocol`, `client` and `launch`;
the rest runs in the gateway's process. It trusts nothing a sandbox sends, and the engine trusts
nothing it says but the numbers of a log.
"""
