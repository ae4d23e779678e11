"""`r2_buckets` bindings of a Worker: a folder in development, a bucket in production, one API.

`values` is what calls return, `bucket` the calls, `multipart` uploads in parts, `opening` which
store a binding means. obstore is called in threads: its coroutines end the interpreter with an abort
in a third of its exits (0.12, seen in 13 of 24), its blocking calls never did.
"""
