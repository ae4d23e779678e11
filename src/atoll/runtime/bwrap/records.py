"""What must be known to find and remove sandboxes of level `bwrap`: a file each, written before the rest."""

from contextlib import suppress
from pathlib import Path

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Of one sandbox. Lives until its `remove` is done."""

    run_dir: str = ""
    agent_dir: str = ""
    memory: int = 0  # bytes; 0: of an engine that did not watch it
    group: str = ""  # its control group; "": it has none
    pid: int = 0  # 0: not told its configuration yet
    identity: str = ""
    score: int | None = None  # oom_score_adj of its agent at the start; None: of an earlier engine
    stopped: tuple[int, ...] | None = None  # processes stopped before a pause; None: not paused


class Records:
    """All of one engine.

    Args:
        folder: holds them; made by `open`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Make the folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, host_ref: str) -> Record | None:
        """Return the record; None: there is none.

        One that a power cut left without its content says nothing: no process has outlived that.
        """
        with suppress(FileNotFoundError):
            written = (self._folder / host_ref).read_bytes()
            try:
                return msgspec.json.decode(written, type=Record)
            except msgspec.DecodeError:
                return Record()
        return None

    def write(self, host_ref: str, record: Record) -> None:
        """Write the record; whoever reads it finds all of it, or the one before."""
        draft = self._folder / f"{host_ref}.new"
        draft.write_bytes(msgspec.json.encode(record))
        draft.rename(self._folder / host_ref)

    def drop(self, host_ref: str) -> None:
        """Forget it. Idempotent."""
        (self._folder / host_ref).unlink(missing_ok=True)

    def list(self) -> list[str]:
        """Return the host_ref of every sandbox with a record."""
        return sorted(path.name for path in self._folder.iterdir() if path.suffix != ".new")
