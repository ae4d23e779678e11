"""The host seen from the engine: system calls the standard library lacks, and child processes.

`linux` is the only module of the engine with ctypes; `process` the only one that starts a host
process. Everything above (runtime, images, network, storage) goes through them, so what root
does on this host can be read in two files. `pump` is here because previews and the egress gateway
carry bytes in the same way.
"""
