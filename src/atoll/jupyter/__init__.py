"""Sandboxes as kernels of Jupyter: needs the extra ``atoll[jupyter]``.

`provisioner` is what Jupyter starts a kernel with, `kernel` the process that it starts: it speaks
Jupyter's protocol here and runs all code in a sandbox. `outputs` is what both, and
``atoll notebook``, make of results.
"""
