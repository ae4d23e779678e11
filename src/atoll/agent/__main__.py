"""Start of the agent: read the configuration from its descriptor, greet the engine, run."""

import gc
import os

from atoll.agent.greeting import greet
from atoll.agent.signals import ignore_signals

CONFIG_FD = 4


def main() -> None:
    """Run until the sandbox is shut down."""
    with open(CONFIG_FD, "rb") as file:
        data = file.read()
    os.environ.clear()
    ignore_signals()
    first = greet(data)
    gc.disable()  # 2 ms of what follows
    from atoll.agent.start import run  # only now: the engine is answered

    gc.enable()
    run(data, first)


if __name__ == "__main__":
    main()
