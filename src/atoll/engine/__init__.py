"""Decides and owns state: identity, lifecycle and timers of sandboxes, and the store.

Pure: `ids`, `states`, `record`, `admission`. I/O: `store`, `link`, `lifecycle`. `sandbox` is one
durable object per id; `engine` wires everything and is the only place that builds components.
"""
