"""Exposed ports, and the ways to the servers behind them."""
