from e2e.runtime.conftest import bench

__all__ = ["bench"]
