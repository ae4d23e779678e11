"""The engine's side of the connections to agents."""
