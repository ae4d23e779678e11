"""The code interpreter: contexts whose state lives on from one piece of code to the next.

`contexts` is the router's side: it knows which contexts there are and hands connections on.
`host` is a process of the agent beneath it that owns kernels: it starts them as ordinary confined
commands, reads their descriptors, times them, and ends them. `kernels` is what runs with the
image's own Python and Node as the sandbox's user; nothing in it is trusted.
"""
