"""What is tried from outside of a sandbox, or needs more than one of them.

A probe takes a `Site` and returns what it could do although it must not. It leaves nothing behind
that `Site.clear` does not remove.
"""
