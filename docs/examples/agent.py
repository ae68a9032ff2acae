"""An agent with a reminder, a daily report and a poll every 30 seconds.

reservation-expiry worker docs/examples/agent.py --port 8790
curl -X POST localhost:8790/alice
curl localhost:8790/alice
"""

import time

from workers import EventSchedule, Response, WorkerEntrypoint

MINUTE = 60_000


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        agent = self.env.AGENT.getByName(request.url.rpartition("/")[2] or "nobody")
        if request.method == "POST":
            await agent.begin(int(time.time() * 1000))
        return Response.json(await agent.diary())


class Agent(EventSchedule):
    async def begin(self, now):
        await self.scheduleEvent("reminder", now + 5 * MINUTE, payload="call back")
        await self.scheduleEvent("report", cron="0 9 * * *", zone="Europe/Brussels")
        await self.scheduleEvent("poll", now + 30_000, repeatMs=30_000)

    async def processEvent(self, event):
        diary = await self.ctx.storage.get("diary") or []
        entry = {"what": event["id"], "plannedFor": event["runAt"], "says": event["payload"]}
        self.ctx.storage.put("diary", [*diary[-99:], entry])

    async def diary(self):
        planned = {event["id"]: event["runAt"] for event in await self.listEvents()}
        return {"planned": planned, "diary": await self.ctx.storage.get("diary") or []}
