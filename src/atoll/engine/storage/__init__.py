"""Snapshots, forks, backups, volumes, mounts, and the disk they take."""
