"""What outlives the engine: the SQLite file, the records of sandboxes, events, keys, the audit."""
