"""Cron expressions of `triggers.crons`, as the platform reads them. Pure; all times are UTC.

Five fields: minute, hour, day of month, month, day of week. Days of the week are 1 to 7 and **1 is
Sunday** (names are safer). Beside ``*``, lists, ranges and steps there are ``L`` (last day of the
month; ``5L``: the last such weekday), ``15W`` (the weekday nearest the 15th) and ``6#2`` (the
second such weekday). Where day of month and day of week are both restricted, either one suffices.
"""

import calendar
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from atoll.errors import InvalidConfigError

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_YEARS = 8
"""How far ahead a match is looked for: a 29th of February is at most so far away."""

_Day = Callable[[datetime], bool]


class Cron(NamedTuple):
    """A parsed expression. Make it with `parse`."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    day: _Day

    def after(self, time: datetime) -> datetime | None:
        """Return the first match later than *time*; None when there is none in 8 years."""
        now = time.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = now + timedelta(days=366 * _YEARS)
        while now < end:
            if now.month not in self.months or not self.day(now):
                now = now.replace(hour=0, minute=0) + timedelta(days=1)
            elif now.hour not in self.hours:
                now = now.replace(minute=0) + timedelta(hours=1)
            elif now.minute not in self.minutes:
                now += timedelta(minutes=1)
            else:
                return now
        return None


def parse(text: str) -> Cron:
    """Return the expression *text*.

    Raises:
        InvalidConfigError: it is none, or matches no time.
    """
    fields = text.upper().split()
    if len(fields) != 5:
        raise _wrong(text, f"it has {len(fields)} fields, not 5")
    minute, hour, day, month, weekday = fields
    try:
        found = Cron(
            text,
            _numbers(minute, 0, 59),
            _numbers(hour, 0, 23),
            _numbers(month, 1, 12, _MONTHS),
            _day(day, weekday),
        )
    except ValueError as error:
        raise _wrong(text, str(error)) from error
    if found.after(datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise _wrong(text, "no day matches it")
    return found


def _wrong(text: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the cron expression {text!r} is wrong: {why}",
        context={"cron": text},
        suggestion='write "minute hour day month weekday", like "*/30 * * * *"',
    )


def _day(day: str, weekday: str) -> _Day:
    if weekday in {"*", "?"}:
        return _any_of(day, _day_of_month)
    if day in {"*", "?"}:
        return _any_of(weekday, _day_of_week)
    of_month, of_week = _any_of(day, _day_of_month), _any_of(weekday, _day_of_week)
    return lambda time: of_month(time) or of_week(time)


def _any_of(field: str, read: Callable[[str], _Day]) -> _Day:
    rules = [read(part) for part in field.split(",")]
    return lambda time: any(rule(time) for rule in rules)


def _day_of_month(part: str) -> _Day:
    if part == "L":
        return lambda time: time.day == _last(time)
    if part == "LW":
        return lambda time: time.day == _nearest_weekday(time, _last(time))
    if part.endswith("W"):
        wanted = _number(part[:-1], 1, 31)
        return lambda time: time.day == _nearest_weekday(time, wanted)
    days = _numbers(part.replace("?", "*"), 1, 31)
    return lambda time: time.day in days


def _day_of_week(part: str) -> _Day:
    if part.endswith("L") and part != "L":
        last = _number(part[:-1], 1, 7, _DAYS)
        return lambda time: _weekday(time) == last and time.day > _last(time) - 7
    if "#" in part:
        name, _, count = part.partition("#")
        wanted, nth = _number(name, 1, 7, _DAYS), _number(count, 1, 5)
        return lambda time: _weekday(time) == wanted and (time.day - 1) // 7 + 1 == nth
    days = {7} if part == "L" else _numbers(part, 1, 7, _DAYS)
    return lambda time: _weekday(time) in days


def _weekday(time: datetime) -> int:
    return time.isoweekday() % 7 + 1


def _last(time: datetime) -> int:
    return calendar.monthrange(time.year, time.month)[1]


def _nearest_weekday(time: datetime, day: int) -> int:
    """Return the weekday (Monday to Friday) nearest *day* in the month of *time*; 0: no such day."""
    last = _last(time)
    if day > last:
        return 0
    name = time.replace(day=day).isoweekday()
    if name == 6:
        return day - 1 if day > 1 else day + 2
    if name == 7:
        return day + 1 if day < last else day - 2
    return day


def _numbers(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, end = span.partition("-")
        if span == "*":
            start, stop = low, high
        else:
            start = _number(first, low, high, names)
            stop = _number(end, low, high, names) if dash else high if slash else start
        if start > stop:
            raise ValueError(f"{span} ends before it begins")
        found.update(range(start, stop + 1, _number(step, 1, high) if slash else 1))
    return frozenset(found)


def _number(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> int:
    if text in names:
        return names.index(text) + 1
    if not (text.isascii() and text.isdecimal()) or not low <= int(text) <= high:
        raise ValueError(f"{text!r} is not between {low} and {high}")
    return int(text)
