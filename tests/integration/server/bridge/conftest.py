from integration.server.conftest import client, engine, opener, world

__all__ = ["client", "engine", "opener", "world"]
