"""What runs inside a sandbox. Standard library only, and no more of it than the agent brings along.

A probe is a function without effects that last: it returns what it could do although it must not.
"""
