"""What callers do with a running sandbox."""
