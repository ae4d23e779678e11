"""Commands that set and tell extended attributes and access lists, without tools for them."""

import pytest

import atoll
from conformance.differences import of_gvisor

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
    kept = [key for key in sorted(os.listxattr(name)) if key.startswith(KINDS)]
    print(name, oct(os.stat(name).st_mode), [(key, os.getxattr(name, key)) for key in kept])
"""


def tell_attributes(*kinds: str) -> str:
    """Return the command that tells of those in /workspace/p whose names begin so; none given: of all."""
    return f"(cd /workspace/p && python3 - <<'END'\nKINDS = {kinds or ('',)}{_TELL}END\n)"


async def set_attributes(box: atoll.Sandbox, level: str) -> None:
    """Set them in /workspace/p, which has a file ``f`` and a folder ``d``; skip where a level has none."""
    done = await box.exec(f"python3 - <<'END'\n{_SET}END", cwd="/workspace/p")
    if level == "gvisor":
        assert "Operation not supported" in done.stderr
        pytest.skip(of_gvisor()["extended attributes"])
    if level == "kubernetes" and not done.success:
        pytest.skip("the nodes' file system has no extended attributes")
    assert done.success, done.stderr
