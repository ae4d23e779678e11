"""From the configuration to the router that runs."""

import gc
import os
import resource
import socket
import sys

from atoll.agent import config, kernel
from atoll.agent.devices import open_devices
from atoll.agent.router import Router
from atoll.agent.workdir import make_workdir


def run(data: bytes, first: socket.socket | None) -> None:
    """Run until the sandbox is shut down.

    Args:
        data: the configuration.
        first: a connection that was accepted already.
    """
    settings = config.parse(data)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settings = settings._replace(files=max(settings.files, soft), devices=open_devices())
    if os.getpid() != 1:  # on a bare host: orphans must not reach the host's init
        kernel.become_subreaper()
    make_workdir(settings.workdir)
    gc.collect()
    gc.freeze()  # forked children then share these pages for good
    router = Router(settings)
    if first:
        router.take(first)
    router.loop.run()
    sys.exit(0)
