"""The parts of the `fake` runtime: directories, and the host itself."""
