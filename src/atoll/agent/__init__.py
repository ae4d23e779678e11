"""What runs inside a sandbox as pid 1: commands, sessions, files. Standard library only.

Three kinds of process, so that nothing user code does can hold up the next call:

* the *router* (pid 1) accepts connections, reads one HEADER each and routes them; it never blocks;
* a *supervisor* per command owns that command's connections, pipes, timers and process tree;
* a *child* per file operation does that one operation with the user's ids.
"""
