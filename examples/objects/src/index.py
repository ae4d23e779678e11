"""A sandbox class: each room has files and a shell, remembers its visitors, and reminds itself."""

from atoll import Sandbox, get_sandbox, proxy_to_sandbox
from atoll.workers import Response, WorkerEntrypoint


class Room(Sandbox):
    sleep_after = "2m"
    env_vars = {"GREETING": "hello"}
    labels = {"example": "objects"}

    def __init__(self, ctx, env):
        super().__init__(ctx, env)
        ctx.storage.sql.exec(
            "CREATE TABLE IF NOT EXISTS visits (name TEXT, at TEXT DEFAULT current_timestamp)"
        )

    async def on_start(self):
        await self.write_file("welcome.txt", "a room of one's own\n")

    async def on_stop(self, params):
        await self.ctx.storage.put("slept because", params["reason"])

    async def visit(self, name):
        """Remember a visitor and greet them from inside the sandbox."""
        self.ctx.storage.sql.exec("INSERT INTO visits (name) VALUES (?)", name)
        await self.schedule("1s", "remind", {"of": name})
        greeting = await self.exec(["sh", "-c", 'cat welcome.txt; echo "$GREETING, $0"', name])
        return greeting.stdout

    async def visitors(self):
        """Who was here; needs no container."""
        rows = self.ctx.storage.sql.exec("SELECT name FROM visits ORDER BY rowid")
        return [row["name"] for row in rows]

    async def remind(self, payload):
        await self.ctx.storage.put("reminded of", payload["of"])

    async def state(self):
        return await self.ctx.storage.list()


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if response := await proxy_to_sandbox(request, self.env):
            return response
        room = get_sandbox(self.env.ROOM, request.url.search_params.get("room", "lobby"))
        name = request.url.search_params.get("name")
        if name:
            return Response(await room.visit(name))
        return Response.json({"visitors": await room.visitors(), "state": await room.state()})

    async def scheduled(self, event):
        print("every night", event.cron, event.scheduled_time)
