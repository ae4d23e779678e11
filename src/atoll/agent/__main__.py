"""Start of the agent: read the configuration from its descriptor, become the router."""

import gc
import os
import resource
import sys

from atoll.agent import config, kernel
from atoll.agent.devices import open_devices
from atoll.agent.router import Router, ignore_signals

CONFIG_FD = 4


def main() -> None:
    """Run until the sandbox is shut down."""
    with open(CONFIG_FD, "rb") as file:
        settings = config.parse(file.read())
    os.environ.clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settings = settings._replace(files=max(settings.files, soft), devices=open_devices())
    ignore_signals()
    if os.getpid() != 1:  # on a bare host: orphans must not reach the host's init
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    gc.collect()
    gc.freeze()  # forked children then share these pages for good
    Router(settings).loop.run()
    sys.exit(0)


if __name__ == "__main__":
    main()
