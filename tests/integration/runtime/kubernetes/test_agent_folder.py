import subprocess
from pathlib import Path

from atoll.runtime.kubernetes import agent_folder, manifest


async def test_the_agent_starts_by_the_paths_that_a_pod_names(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    assert await agent_folder.lay(folder)
    argv = [word.replace(manifest.AGENT_DIR, str(folder)) for word in manifest.PYTHON]
    done = subprocess.run([*argv, "import atoll.agent.pod"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not any(path.name == "sdk" for path in folder.rglob("*"))
