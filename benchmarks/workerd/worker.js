// The peer: the recorded contract (tests/contract/) as a Worker on Durable Objects.

import { DurableObject } from "cloudflare:workers";

const ROUTE = /^\/reservations\/([a-z0-9][a-z0-9-]{1,38}[a-z0-9])(\/replay-alarm)?$/;
const BAD_ID = "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens.";
const BAD_BODY = "Send a JSON request body.";
const BAD_TTL = "ttlSeconds must be an integer from 5 through 3600.";
const BAD_NOW = "now must be a positive integer timestamp.";
const BAD_METHOD = "Method not allowed.";

export class Reservation extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec(
      `CREATE TABLE IF NOT EXISTS hold (one INTEGER PRIMARY KEY CHECK (one = 1),
         created INTEGER, expires INTEGER, expired INTEGER, count INTEGER)`,
    );
  }

  async hold(ttlSeconds) {
    const created = Date.now();
    const expires = created + ttlSeconds * 1000;
    this.ctx.storage.sql.exec(
      "INSERT OR REPLACE INTO hold VALUES (1, ?, ?, NULL, 0)", created, expires,
    );
    await this.ctx.storage.setAlarm(expires);
    return this.show();
  }

  async show() {
    const alarmAt = await this.ctx.storage.getAlarm();
    const [row] = this.ctx.storage.sql.exec("SELECT * FROM hold").toArray();
    if (row === undefined) return { status: "missing", alarmAt };
    return {
      status: row.count === 0 ? "held" : "expired",
      createdAt: row.created,
      expiresAt: row.expires,
      expiredAt: row.expired,
      expirationCount: row.count,
      alarmAt,
    };
  }

  async expire(now) {
    const written = this.ctx.storage.sql.exec(
      "UPDATE hold SET expired = ?, count = 1 WHERE count = 0 AND expires <= ?", now, now,
    ).rowsWritten;
    if (written > 0) await this.ctx.storage.deleteAlarm();
    return { ...(await this.show()), changed: written > 0 };
  }

  async alarm(info) {
    const before = await this.show();
    const now = Date.now();
    await this.expire(now);
    console.log(JSON.stringify({
      event: "reservation-alarm", isRetry: info.isRetry, retryCount: info.retryCount,
      latenessMs: now - before.expiresAt, at: now,
    }));
  }
}

const answer = (body, status = 200) => Response.json(body, { status });
const refuse = (error, status = 400) => answer({ error }, status);
const within = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/") return answer({ service: "reservation-expiry" });
    const found = ROUTE.exec(pathname);
    if (found === null) return refuse(BAD_ID);
    const [, reservationId, replay] = found;
    const object = env.RESERVATIONS.getByName(reservationId);
    if (request.method === "POST") {
      const body = await request.json().catch(() => null);
      if (!body) return refuse(BAD_BODY);
      if (replay) {
        if (!within(body.now, 1, Number.MAX_SAFE_INTEGER)) return refuse(BAD_NOW);
        return answer({ reservationId, ...(await object.expire(body.now)) });
      }
      if (!within(body.ttlSeconds, 5, 3600)) return refuse(BAD_TTL);
      return answer({ reservationId, ...(await object.hold(body.ttlSeconds)) }, 201);
    }
    if (replay || request.method !== "GET") return refuse(BAD_METHOD, 405);
    return answer({ reservationId, ...(await object.show()) });
  },
};
