"""The network of sandboxes: a namespace, an address and a packet filter for each.

The kernel holds the state (interface names, groups and aliases, bound namespaces, one nftables
table an engine); an engine that was killed finds its slots there. A sandbox reaches the internet
and its resolvers, never another sandbox, the host or the networks around it.
"""
