"""Images: the base image, Dockerfile builds, pulls, and the store of unpacked layers.

An image is a list of directories, one a layer, that are used read-only as lower layers of an
overlay, plus a small configuration. Everything is under ``cache_dir/images``, content-addressed
and shared by all engines of a host; all of it can be made again.
"""
