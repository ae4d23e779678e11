"""Previews: from a visitor's connection to a port inside a sandbox. Nothing here wakes one."""
