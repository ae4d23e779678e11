"""File operations (``fs.*``): one module for each kind of operation, `dispatch` chooses.

What runs here runs in a process of its own, with the ids of the user it works for.
"""
