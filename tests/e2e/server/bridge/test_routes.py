"""A whole run of a `SandboxAgent`: only the model is a double, the rest is the package as it is."""

import io
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner
from agents.extensions.sandbox.cloudflare import (
    CloudflareSandboxClient,
    CloudflareSandboxClientOptions,
)
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import Dir, File
from agents.sandbox.session import SandboxSession

from e2e.server.bridge.model_double import ScriptedModel, Step, Turn, patch, says, tool

ADD = """*** Begin Patch
*** Add File: src/greet.py
+def greet(name):
+    return "Hi " + name
*** Update File: notes.txt
@@
-first
+changed
 second
*** End Patch
"""
MOVE = """*** Begin Patch
*** Update File: src/greet.py
*** Move to: src/hello.py
@@ def greet(name):
-    return "Hi " + name
+    return f"Hello, {name}!"
*** Delete File: old.txt
*** End Patch
"""
RUN = 'python3 -c \'import sys; sys.path.append("src"); import hello; print(hello.greet("you"))\''


def shell(command: str, **options: Any) -> Turn:
    return tool("exec_command", cmd=command, yield_time_ms=700, **options)


def typed(terminal: int, text: str) -> Turn:
    return tool("write_stdin", session_id=terminal, chars=text, yield_time_ms=700)


async def run(
    agent: SandboxAgent[None], options: CloudflareSandboxClientOptions | SandboxSession
) -> str:
    if isinstance(options, SandboxSession):
        sandbox = SandboxRunConfig(session=options)
    else:
        sandbox = SandboxRunConfig(client=CloudflareSandboxClient(), options=options)
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    result = await Runner.run(agent, "go", run_config=config)
    return str(result.final_output)


async def test_an_agent_works_with_files_patches_and_a_shell(
    options: CloudflareSandboxClientOptions,
) -> None:
    """Its sandbox is made for the run, gets the manifest's files, and goes with the run."""
    model = ScriptedModel(
        Step(shell("cat notes.txt; ls data"), "a.csv"),
        Step(patch(ADD), "src/greet.py"),
        Step(patch(MOVE), "src/hello.py"),
        Step(shell(f"{RUN}; cat notes.txt; ls; echo e''nd"), "end"),
        Step(shell("read -r line; echo got-$line", tty=True), "read -r line"),
        Step(lambda terminal: typed(terminal, "this\n"), "got-this"),
        Step(lambda terminal: typed(terminal, "exit 4\n"), "Process exited with code 4"),
        Step(says("done")),
    )
    agent = SandboxAgent[None](
        name="worker",
        model=model,
        capabilities=[Shell(), Filesystem()],
        default_manifest=Manifest(
            entries={
                "notes.txt": File(content=b"first\nsecond\n"),
                "old.txt": File(content=b"old\n"),
                "data": Dir(children={"a.csv": File(content=b"1,2\n")}),
            }
        ),
    )
    assert await run(agent, options) == "done"
    assert model.tools == {"exec_command", "write_stdin", "view_image", "apply_patch"}
    (shown,) = [output for output in model.outputs if "Hello, you!" in output]
    assert "changed" in shown
    assert "old.txt" not in shown.partition("Hello, you!")[2]


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/outside.txt"])
async def test_a_patch_that_leads_out_changes_nothing(box: SandboxSession, path: str) -> None:
    hostile = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"
    model = ScriptedModel(Step(patch(hostile)), Step(says("done")))
    agent = SandboxAgent[None](name="worker", model=model, capabilities=[Filesystem()])
    assert await run(agent, box) == "done"
    left = await box.exec("ls /outside.txt /etc/outside.txt || true")
    assert left.stdout == b""


async def test_an_agent_sees_a_picture(box: SandboxSession) -> None:
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
        "0000000049454e44ae426082"
    )
    await box.write(Path("dot.png"), io.BytesIO(png))
    model = ScriptedModel(Step(tool("view_image", path="dot.png")), Step(says("done")))
    agent = SandboxAgent[None](name="worker", model=model, capabilities=[Filesystem()])
    assert await run(agent, box) == "done"
    assert "data:image/png;base64," in model.outputs[0]
