"""Level ``gvisor``: runsc, a kernel of its own between a sandbox and the host's."""
