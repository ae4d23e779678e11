"""How many examples a target is tried with: few in a usual run, as many as asked for in `make fuzz`."""

import os

from hypothesis import HealthCheck, settings


def examples(usual: int) -> settings:
    """Return the settings of a target.

    Args:
        usual: examples where ``ATOLL_FUZZ_EXAMPLES`` names no number.
    """
    return settings(
        max_examples=int(os.environ.get("ATOLL_FUZZ_EXAMPLES", usual)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
