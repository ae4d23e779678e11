"""Measures what Atoll claims, each figure beside its floor in the same run on the same machine.

Ratios are what counts; milliseconds depend on the machine. `python -m bench` prints one table
and writes it as JSON to bench/results.
"""
