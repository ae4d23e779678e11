"""Commands that set and tell extended attributes and access lists, without tools for them."""

_SET = r"""
import os, struct
ANY = 2**32 - 1
entries = (1, 7, ANY), (2, 7, 0), (4, 4, ANY), (16, 7, ANY), (32, 0, ANY)
one = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
os.setxattr("f", "user.note", b"\0\xff")
os.setxattr("d", "user.a=b", b"y")
os.setxattr("f", "system.posix_acl_access", one)
os.setxattr("d", "system.posix_acl_default", one)
"""

_TELL = r"""
import os
for name in ("f", "d", "d/g"):
    found = sorted((key, os.getxattr(name, key)) for key in os.listxattr(name))
    print(name, oct(os.stat(name).st_mode), found)
"""

SET_ATTRIBUTES = f"python3 - <<'END'\n{_SET}END"
"""Run in a directory that has a file ``f`` and a folder ``d``."""

TELL_ATTRIBUTES = f"(cd /workspace/p && python3 - <<'END'\n{_TELL}END\n)"
