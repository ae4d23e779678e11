"""Alarms, schedules and crons: rows of the store that fire when their time has come.

A row is removed after its call was answered, so it fires at least once whatever is killed. Those
of one object fire one after the other, in the order of their times; objects do not wait for one
another. A call that raises is tried again with growing pauses, `RETRIES` times. Where no Worker is
there nothing is counted: its rows wait until one attaches.
"""

import asyncio
import json
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from atoll.engine.objects.deliveries import LostError
from atoll.engine.objects.table import Key
from atoll.engine.store.database import Database
from atoll.errors import InvalidConfigError, SandboxError, WorkerUnavailableError
from atoll.wire import cron

log = structlog.get_logger(__name__)

RETRIES = 6
FIRST_PAUSE = 2.0
"""Seconds until the first retry; each pause is twice the one before. As on the platform."""

LONGEST_WAIT = 30.0
"""Seconds after which the clock is looked at again, whatever it said: it may have been set."""

FAULT_PAUSE = 1.0
"""Seconds after a fault of ours, like a full disk, before the same timers are tried again."""

BATCH = 200

ALARM, SCHEDULE, CRON = "alarm", "schedule", "cron"


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Times are unix seconds; of a cron, namespace is the project and id the expression."""

    uid: str
    kind: str
    namespace: str
    id: str
    due: float
    method: str = ""
    payload: Any = None
    attempts: int = 0

    @property
    def key(self) -> Key:
        """Whose timer it is."""
        return self.namespace, self.id

    @property
    def time(self) -> datetime:
        """When it was due first."""
        return datetime.fromtimestamp(self.due, UTC)


Fire = Callable[[Timer], Awaitable[None]]


class Timers:
    """The timers of all objects and projects.

    Args:
        database: where they are.
        fire: makes the call of a timer; raises what came of it.
        failed: is told of a timer that is given up.
        now: the clock.
    """

    def __init__(
        self,
        database: Database,
        fire: Fire,
        failed: Callable[[Timer, SandboxError], Awaitable[None]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._fire = fire
        self._failed = failed
        self._now = now
        self._changed = asyncio.Event()
        self._busy: dict[Key, asyncio.Task[None]] = {}
        self._parked: set[str] = set()  # namespaces and projects whose Worker is away
        self._firing: set[str] = set()
        self._loop: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to fire."""
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Fire nothing more; what has not been answered fires again after the next start."""
        tasks = [task for task in (self._loop, *self._busy.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self) -> None:
        """Look at the clock and the store again; also at what waited for a Worker."""
        self._parked.clear()
        self._changed.set()

    # Setting

    async def add(self, key: Key, method: str, payload: Any, due: float) -> Timer:
        """Store a schedule."""
        timer = Timer(
            uid=_uid(), kind=SCHEDULE, namespace=key[0], id=key[1], due=due, method=method,
            payload=payload,
        )  # fmt: skip
        await self._put(timer, due)
        return timer

    async def set_alarm(self, key: Key, due: float) -> None:
        """Store the alarm of an object in the place of the one that is set."""
        timer = Timer(uid=_uid(), kind=ALARM, namespace=key[0], id=key[1], due=due, method="alarm")
        await self._put(timer, due)

    async def _put(self, timer: Timer, next_try: float) -> None:
        # An alarm is unique by index, so a new one takes the place of the old.
        await self._database.execute(
            "INSERT OR REPLACE INTO timers VALUES (?, ?, ?, ?, ?, ?)",
            (
                timer.uid, timer.kind, timer.namespace, timer.id, next_try,
                msgspec.json.encode(timer),
            ),
        )  # fmt: skip
        self._changed.set()

    async def alarm(self, key: Key) -> Timer | None:
        """Return the alarm that is set, as long as it has not fired."""
        found = [timer for timer in await self.of(key) if timer.kind == ALARM]
        return found[0] if found and found[0].uid not in self._firing else None

    async def delete_alarm(self, key: Key) -> None:
        """Remove the alarm, if one is set."""
        await self._database.execute(
            "DELETE FROM timers WHERE namespace = ? AND id = ? AND kind = 'alarm'", key
        )

    async def of(self, key: Key) -> list[Timer]:
        """Return all timers of an object, the next one first."""
        rows = await self._database.read(
            "SELECT body FROM timers WHERE namespace = ? AND id = ? AND kind != 'cron'"
            " ORDER BY next_try, uid", key,
        )  # fmt: skip
        return [msgspec.json.decode(row[0], type=Timer) for row in rows]

    async def cancel(self, key: Key, uid: str) -> bool:
        """Remove a schedule; return whether there was one."""

        def delete(connection: Any) -> bool:
            done = connection.execute(
                "DELETE FROM timers WHERE uid = ? AND namespace = ? AND id = ?"
                " AND kind = 'schedule'", (uid, *key),
            )  # fmt: skip
            return bool(done.rowcount)

        return await self._database.write(delete)

    async def set_crons(self, project: str, expressions: list[str]) -> None:
        """Keep the crons of *project* that are in *expressions*, with their times; add and remove.

        Raises:
            InvalidConfigError: one of them is no expression.
        """
        parsed = {text: cron.parse(text) for text in expressions}
        rows = await self._database.read(
            "SELECT id, uid FROM timers WHERE namespace = ? AND kind = 'cron'", (project,)
        )
        known = {row[0]: row[1] for row in rows}
        for text in known.keys() - parsed.keys():
            await self._remove(known[text])
        for text in parsed.keys() - known.keys():
            due = self._next(text)
            timer = Timer(
                uid=f"cron {project} {text}", kind=CRON, namespace=project, id=text, due=due
            )
            await self._put(timer, due)

    def _next(self, text: str) -> float:
        found = cron.parse(text).after(datetime.fromtimestamp(self._now(), UTC))
        if found is None:
            raise InvalidConfigError(f"the cron {text!r} never fires", context={"cron": text})
        return found.timestamp()

    async def _remove(self, uid: str) -> None:
        await self._database.execute("DELETE FROM timers WHERE uid = ?", (uid,))

    # Firing

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                wait = await self._start_due()
            except Exception as error:
                log.error("timers failed", exc_info=error)
                wait = 1.0
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _start_due(self) -> float:
        """Start what is due; return the seconds until there is more."""
        now, offset = self._now(), 0
        due: dict[Key, list[Timer]] = defaultdict(list)
        while True:
            rows = await self._database.read(
                "SELECT next_try, body FROM timers WHERE namespace NOT IN"
                " (SELECT value FROM json_each(?)) ORDER BY next_try, uid LIMIT ? OFFSET ?",
                (json.dumps(sorted(self._parked)), BATCH, offset),
            )
            for next_try, body in rows:
                if float(next_try) > now:
                    self._start(due)
                    return min(LONGEST_WAIT, float(next_try) - now)
                timer = msgspec.json.decode(body, type=Timer)
                due[timer.key].append(timer)
            if len(rows) < BATCH:
                self._start(due)
                return LONGEST_WAIT
            offset += BATCH

    def _start(self, due: dict[Key, list[Timer]]) -> None:
        for key, timers in due.items():
            if key not in self._busy:
                task = asyncio.create_task(self._fire_all(key, timers))
                self._busy[key] = task

    async def _fire_all(self, key: Key, timers: list[Timer]) -> None:
        try:
            for timer in timers:
                if not await self._is_stored(timer):
                    continue
                await self._fire_one(timer)
        except WorkerUnavailableError:
            self._parked.add(key[0])
        except LostError:
            log.info("a timer fires again", namespace=key[0], id=key[1])
        except Exception as error:
            log.error("timer failed", namespace=key[0], id=key[1], exc_info=error)
            await asyncio.sleep(FAULT_PAUSE)
        finally:
            del self._busy[key]
            self._changed.set()

    async def _is_stored(self, timer: Timer) -> bool:
        """Whether nobody removed or replaced it since it was read."""
        return bool(await self._database.read("SELECT 1 FROM timers WHERE uid = ?", (timer.uid,)))

    async def _fire_one(self, timer: Timer) -> None:
        self._firing.add(timer.uid)
        try:
            await self._fire(timer)
        except WorkerUnavailableError:
            raise
        except SandboxError as error:
            await self._not_done(timer, error)
        else:
            await self._done(timer)
        finally:
            self._firing.discard(timer.uid)

    async def _done(self, timer: Timer) -> None:
        if timer.kind == CRON:
            due = self._next(timer.id)
            await self._again(msgspec.structs.replace(timer, due=due, attempts=0), due)
        else:
            await self._remove(timer.uid)

    async def _not_done(self, timer: Timer, error: SandboxError) -> None:
        log.warning(
            "timer's call failed", kind=timer.kind, namespace=timer.namespace, id=timer.id,
            method=timer.method, attempts=timer.attempts + 1, reason=str(error),
        )  # fmt: skip
        if timer.kind == CRON or timer.attempts >= RETRIES:
            await self._done(timer)
            await self._failed(timer, error)
            return
        pause = FIRST_PAUSE * 2**timer.attempts
        again = msgspec.structs.replace(timer, attempts=timer.attempts + 1)
        await self._again(again, self._now() + pause)

    async def _again(self, timer: Timer, next_try: float) -> None:
        """Store another time for a timer that is there still: it may have been replaced."""
        await self._database.execute(
            "UPDATE timers SET next_try = ?, body = ? WHERE uid = ?",
            (next_try, msgspec.json.encode(timer), timer.uid),
        )


def _uid() -> str:
    """Return an id in the order of time: what was set first fires first at the same time."""
    return f"{time.time_ns():020d}{secrets.token_hex(4)}"
