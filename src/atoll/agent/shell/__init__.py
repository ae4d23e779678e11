"""Shell commands and the state that a session carries from one to the next.

Pure but for the tests: `launching` says what to execute, the supervisor executes it.
"""
