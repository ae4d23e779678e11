"""Buckets as folders of a sandbox, served by a client on the host that holds the credentials.

`options` decides what a caller may ask for, `probe` asks the bucket itself before anything is made,
`client` runs the client, `fuse` makes the mount that is then moved into the sandbox.
"""
