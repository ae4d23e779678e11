from e2e.engine.conftest import host
from e2e.runtime.conftest import bench

__all__ = ["bench", "host"]
