"""Level ``container``: crun or runc from the distribution, driven by argv, files and descriptors."""
