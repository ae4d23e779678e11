"""Every source file has a test file of the same path, and every mirrored test has its source.

`src/atoll/a/b.py` is mirrored by `tests/{unit,integration,e2e}/a/test_b.py` (at least one).
A test file that covers a part of a module is called `test_b_topic.py`. What is about the
repository and no module stands in `tests/repository`.
"""

import sys
from pathlib import Path

TREES = ("unit", "integration", "e2e")
NO_TEST = {
    "__init__.py": "a charter or lazy exports, covered by the tests of what it exports",
    "__main__.py": "starts what the tests of the other modules start",
}
ELSEWHERE = {
    "probes/inside/": "tests/security runs them in sandboxes, and in weakened ones",
    "probes/outside/": "tests/security runs them on an engine, and on weakened ones",
    "probes/box.py": "what they use",
    "probes/site.py": "what they use",
}
WITHOUT = {
    "engine/store/directory.py": "an interface; the tests of the store are its suite",
    "engine/parts.py": "interfaces of the siblings; their own tests are their suites",
    "runtime/base.py": "an interface; its conformance suite is every driver's tests",
    "sync.py": "names of the generated SDK, compared with the async ones in unit/test_init.py",
}


def mirrors(root: Path, source: str) -> list[Path]:
    path = Path(source)
    stem = path.stem.strip("_")
    found: list[Path] = []
    for tree in TREES:
        folder = root / "tests" / tree / path.parent
        found += folder.glob(f"test_{stem}.py")
        found += folder.glob(f"test_{stem}_*.py")
    return found


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    package = root / "src" / "atoll"
    problems = []
    claimed: set[Path] = set()
    for path in sorted(package.rglob("*.py")):
        source = path.relative_to(package).as_posix()
        found = mirrors(root, source)
        claimed.update(found)
        if source.startswith(("sdk/_sync/", *ELSEWHERE)):
            continue
        if path.name in NO_TEST or source in WITHOUT:
            continue
        if not found:
            problems.append(f"src/atoll/{source}: no test of its own")
    for tree in TREES:
        problems += [
            f"{test.relative_to(root)}: mirrors no source file"
            for test in sorted((root / "tests" / tree).rglob("test_*.py"))
            if test not in claimed
        ]
    print("\n".join(problems) or "tests mirror the source: fine")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
