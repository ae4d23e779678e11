import subprocess
import sys

from atoll.agent.viewer import BACKLOG
from atoll.wire import agent
from atoll.wire.agent import ExitRecord
from atoll.wire.records import Exit


def test_the_replay_window_is_larger_than_what_can_be_on_its_way() -> None:
    """Else a reattached stream could have a gap although it is read."""
    assert agent.REPLAY_WINDOW >= 2 * BACKLOG


def test_the_engine_knows_every_field_of_an_exit() -> None:
    assert set(ExitRecord.__annotations__) == set(Exit.__struct_fields__)


def test_graces_leave_room_for_the_promise_of_one_second() -> None:
    assert agent.TIMEOUT_GRACE < 0.5
    assert agent.ATTACH_GRACE < agent.ORPHAN_GRACE


def test_the_agent_starts_with_the_standard_library_alone() -> None:
    code = (
        "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p];"
        "sys.path.insert(0, sys.argv[1]); import atoll.agent.start, atoll.agent.files.dispatch;"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'msgspec', 'asyncio', 'ssl', 'pwd', 'grp', 'dataclasses', 'inspect', 'subprocess'}))"
    )
    source = agent.__file__.removesuffix("/atoll/wire/agent.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, source], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
