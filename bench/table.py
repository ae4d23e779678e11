"""Samples, their statistics, and the table they are printed in."""

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Samples:
    """Durations in seconds (or another unit, said by the row)."""

    values: list[float]

    def percentile(self, share: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_dict(self) -> dict[str, float]:
        return {
            "samples": len(self.values),
            "median": self.median,
            "p95": self.percentile(0.95),
            "p99": self.percentile(0.99),
        }


@dataclass(frozen=True)
class Row:
    """One measurement beside its floor. `goal` is the largest (or smallest) ratio wanted."""

    what: str
    measured: Samples
    against: str
    floor: Samples
    goal: float
    at_least: bool = False
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        return self.measured.median / self.floor.median

    @property
    def met(self) -> bool:
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "against": self.against,
            "unit": self.unit,
            "measured": self.measured.to_dict(),
            "floor": self.floor.to_dict(),
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
        }


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def skip(self, what: str, why: str) -> None:
        self.missing.append((what, why))

    def show(self) -> None:
        table = Table(title="Atoll beside its floors")
        for name in ("what", "n", "median", "p95", "p99", "against", "median", "ratio", "goal", ""):
            table.add_column(name, justify="left" if name in {"what", "against"} else "right")
        for row in self.rows:
            sign = "≥" if row.at_least else "≤"
            table.add_row(
                row.what,
                str(len(row.measured.values)),
                *(_shown(v, row.unit) for v in _three(row.measured)),
                row.against,
                _shown(row.floor.median, row.unit),
                f"{row.ratio:.2f} ×",
                f"{sign} {row.goal:g} ×",
                "met" if row.met else "missed",
            )
        console = Console(width=160)
        console.print(table)
        for what, why in self.missing:
            console.print(f"not measured: {what}: {why}")

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        rows = [row.to_dict() for row in self.rows]
        text = json.dumps({"rows": rows, "missing": dict(self.missing)}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")
        return path


def _three(samples: Samples) -> tuple[float, float, float]:
    return samples.median, samples.percentile(0.95), samples.percentile(0.99)


def _shown(value: float, unit: str) -> str:
    return f"{value * 1000:.2f} ms" if unit == "ms" else f"{value:.0f} {unit}"


async def timed(step: Callable[[], Awaitable[Any]], runs: int, warmup: int = 1) -> Samples:
    """Time *step* *runs* times, after *warmup* runs that do not count."""
    values = []
    for index in range(warmup + runs):
        start = time.perf_counter()
        await step()
        if index >= warmup:
            values.append(time.perf_counter() - start)
    return Samples(values)
