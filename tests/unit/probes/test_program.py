import json
import subprocess
import sys

from atoll.probes import program


def test_the_script_needs_nothing_but_an_interpreter() -> None:
    """Here a probe that looks at its own process only."""
    script = program.script({"network.spoofing": {}, "boundary.descriptors": {}})
    argv = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert set(json.loads(done.stdout)) == {"network.spoofing", "boundary.descriptors"}


def test_it_fits_into_one_argument() -> None:
    assert len(program.script({"kernel.status": {}})) < 128 << 10
