"""Background processes: records that outlive engine, sleep and agent, and their logs."""
