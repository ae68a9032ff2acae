"""A file of objects, as people write them: served by the tests of real processes.

POST /<name>?in=<ms>&fails=<n>&slow=<ms> sets an alarm; GET /<name> tells what has happened,
after ?wait=<ms>.
"""

import asyncio
import time
from urllib.parse import parse_qsl, urlsplit

from workers import DurableObject, Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        name = urlsplit(request.url).path[1:]
        return await self.env.SLEEPER.getByName(name).fetch(request)


class Sleeper(DurableObject):
    async def fetch(self, request):
        storage = self.ctx.storage
        if request.method == "POST":
            asked = {key: int(value) for key, value in parse_qsl(urlsplit(request.url).query)}
            storage.put(asked)
            storage.setAlarm(int(time.time() * 1000) + asked.get("in", 0))
        wait = dict(parse_qsl(urlsplit(request.url).query)).get("wait")
        if wait:
            await asyncio.sleep(int(wait) / 1000)
        return Response.json(await storage.list() | {"alarm": await storage.getAlarm()})

    async def alarm(self, alarm_info):
        storage = self.ctx.storage
        runs = await storage.get("runs") or []
        storage.put("runs", [*runs, alarm_info["retryCount"]])
        slow = await storage.get("slow")
        if slow and not runs:
            await asyncio.sleep(slow / 1000)
        if len(runs) < (await storage.get("fails") or 0):
            raise RuntimeError("on purpose")
        storage.put("done", True)
