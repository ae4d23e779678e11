"""The probes of `atoll.probes.inside` as one script for the interpreter every sandbox has. Pure.

It is given as text, so that nothing has to be put into the sandbox first and nothing stays in it.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

from atoll.runtime.oci.bundle import AGENT_DIR

_PACKAGE = "atoll.probes.inside"
_PARENTS = ("atoll", "atoll.probes", _PACKAGE)
_MODULES = ("attempts", "boundary", "kernel", "network", "egress")
"""In the order of their imports."""

_START = """
import json, sys, types
for name in {parents!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in {modules!r}:
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
given = json.loads({given!r})
found = {{}}
for probe, facts in given:
    module, _, function = probe.partition(".")
    found[probe] = getattr(sys.modules[{package!r} + "." + module], function)(**facts)
print(json.dumps(found))
"""


def script(probes: dict[str, dict[str, Any]]) -> str:
    """Return a script that prints ``{probe: [violation, …]}`` as JSON.

    Args:
        probes: "module.function" of `atoll.probes.inside` → its arguments.
    """
    given = json.dumps(list(probes.items()))
    return _START.format(parents=_PARENTS, modules=_sources(), package=_PACKAGE, given=given)


@cache
def _sources() -> tuple[tuple[str, str], ...]:
    folder = resources.files(_PACKAGE)
    return tuple(
        (f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES
    )


def command(loader: str, text: str) -> list[str]:
    """Return the command that runs the script *text* inside.

    Args:
        loader: file name of the dynamic loader in the agent's ``lib`` directory.
    """
    library = f"{AGENT_DIR}/lib"
    python = f"{AGENT_DIR}/bin/python"
    return [f"{library}/{loader}", "--library-path", library, python, "-I", "-S", "-c", text]
