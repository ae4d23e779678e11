"""The folder that commands start in: made where the image has none, as container engines do it."""

import os


def make_workdir(path: str) -> None:
    """Make the folder *path* and those above it, as root's; what cannot be made is left out.

    A command that starts there says what is wrong. Not `os.makedirs`, which recurses: how deep the
    path is, the image says.
    """
    made = ""
    for part in path.split("/"):
        made += f"{part}/"
        try:
            os.mkdir(made, 0o755)
        except FileExistsError:
            continue
        except (OSError, ValueError):
            return
