"""Drives containers. `base` is the contract, each driver has a folder.

Nothing here decides when a sandbox lives (that is the engine's) or what its disk and network are
(their packages').
"""
