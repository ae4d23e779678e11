"""Objects: sandboxes whose class is in a Worker. What the Worker is called for, and when.

The engine never runs a Worker's code. It knows which classes a Worker has (`registry`), hands
calls to the process that attached (`deliveries`), tells hooks of what happened to sandboxes
(`hooks`), and keeps alarms, schedules and crons (`timers`). All of it is in the store, and what a
Worker must be told follows from the store alone: an engine or a Worker that is killed at any
moment loses no hook and no timer, and may be told of one twice.
"""
