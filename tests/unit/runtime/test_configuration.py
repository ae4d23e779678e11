from pathlib import Path

from atoll.agent import config
from atoll.runtime.base import ContainerSpec
from atoll.runtime.configuration import configuration

SPEC = ContainerSpec(
    host_ref="ref",
    generation=3,
    identity="layer",
    hostname="box",
    rootfs=Path("/r"),
    run_dir=Path("/run"),
    netns=None,
    id_base=0,
    id_count=1,
    memory=1,
    cpu=1,
    pids=1,
    env={"A": "1"},
    user="7:8",
)


def test_an_agent_takes_all_that_it_is_told() -> None:
    """A field of another name would be ignored, as one of a newer engine."""
    told = configuration(SPEC, listen=9)
    assert told.keys() <= set(config.Config._fields)
    assert told["confine"] is True
    assert (told["generation"], told["user"], told["env"]) == (3, "7:8", {"A": "1"})
    assert told["listen"] == 9
