import subprocess
import sys

_SCRIPT = """
from atoll.agent.memory import give_way
give_way(321)
print(open("/proc/self/oom_score_adj").read())
"""


def test_who_gives_way_is_killed_first() -> None:
    """In a process of its own, since nobody can take it back."""
    told = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, check=True)
    assert told.stdout.split() == [b"321"]
