from atoll import get_sandbox, proxy_to_sandbox, Sandbox
from atoll.workers import Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if response := await proxy_to_sandbox(request, self.env):
            return response
        sandbox = get_sandbox(self.env.Sandbox, "my-sandbox")
        result = await sandbox.exec('python3 -c "print(2 + 2)"')
        return Response.json({"output": result.stdout})
