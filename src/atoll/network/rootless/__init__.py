"""The network of sandboxes of a user without root: every way out ends at the user's egress gateway.

No packet of a sandbox ever reaches the host. Its namespace has loopback only, where a packet filter
turns every TCP connection and every question for a name to listeners of the gateway, and refuses all
else. The gateway, a process in the host's network, decides and connects. So there is nothing of the
host to close (its loopback, its networks, a metadata service), no program that carries packets, and one
policy for all levels. `holder` is the process that makes and keeps the namespaces.
"""
