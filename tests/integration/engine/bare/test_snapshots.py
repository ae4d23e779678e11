from pathlib import Path

from atoll.engine.bare.snapshots import BareSnapshots


async def test_copies_are_independent(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    (layers / "a").mkdir(parents=True)
    (layers / "a/file").write_text("then")
    (layers / "a/link").symlink_to("/nowhere")
    snapshots = BareSnapshots(layers)
    await snapshots.take("a", "s")
    (layers / "a/file").write_text("now")
    await snapshots.clone("s", "b", 0)
    assert (layers / "b/file").read_text() == "then"
    assert (layers / "b/link").is_symlink()
    assert await snapshots.list() == ["s"]
    await snapshots.delete("s")
    await snapshots.delete("s")
    assert await snapshots.list() == []
