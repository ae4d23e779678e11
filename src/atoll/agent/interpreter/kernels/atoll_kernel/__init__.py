"""The Python kernel: runs inside the sandbox, with the image's Python (3.9 or newer) and its IPython.

Nothing of the agent is imported here, and the agent trusts nothing that comes from here: user code
runs in the same process. Its protocol has a descriptor of its own, far from those programs use;
1 and 2 are pipes of the one execution that runs, so that output of child processes and late output
is told apart by the pipe it comes from.
"""
