"""The disks of sandboxes: writable layers with a size limit, and the roots mounted from them.

Files on disk hold the image's own ids; a mount maps them to the range of one run. What exists and
what is mounted is read from the file system and the mount table, so an engine that was killed
finds all of it again.
"""
