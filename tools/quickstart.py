"""Runs the quick start: serves examples/quickstart with `atoll dev`, asks it once, shows the answer.

Its Dockerfile cannot be built without root; then the same code runs in a sandbox of the base image.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "examples" / "quickstart"


def main() -> int:
    start = time.monotonic()
    if os.geteuid():
        ask_without_root()
    else:
        ask_the_worker()
    print(f"done in {time.monotonic() - start:.1f} s", flush=True)
    return 0


def ask_without_root() -> None:
    import atoll.sync

    with atoll.sync.local() as env:
        result = atoll.sync.get_sandbox(env.Sandbox, "quickstart").exec('python3 -c "print(2 + 2)"')
        print(json.dumps({"output": result.stdout}), flush=True)


def ask_the_worker() -> None:
    argv = [sys.executable, "-m", "atoll.cli.main", "dev", str(PROJECT), "--port", "0", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = wait_until_ready(server)
            print(f"GET {url}/", flush=True)
            with urllib.request.urlopen(url, timeout=120) as answer:
                print(answer.read().decode(), flush=True)
        finally:
            server.terminate()


def wait_until_ready(server: subprocess.Popen[str]) -> str:
    assert server.stdout
    for line in server.stdout:
        told = json.loads(line)
        if "url" in told:
            url: str = told["url"]
            return url
        print(told["message"], flush=True)
    sys.exit(f"atoll dev ended with {server.wait()}")


if __name__ == "__main__":
    sys.exit(main())
