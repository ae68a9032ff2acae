-- What the scripts share: arguments, requests, a count of unexpected answers, the result.

local common = { unexpected = 0 }

function common.arguments(args)
  local found = {}
  for _, argument in ipairs(args) do
    local name, value = argument:match("^(%w+)=(.*)$")
    if name then found[name] = tonumber(value) or value end
  end
  return found
end

function common.hold(name, ttl)
  return wrk.format("POST", "/reservations/" .. name, { ["Content-Type"] = "application/json" },
    '{"ttlSeconds":' .. (ttl or 3600) .. "}")
end

function common.put(name, item)
  return wrk.format("PUT", "/holds/" .. name, { ["Content-Type"] = "application/json" },
    '{"ttlSeconds":3600,"lines":[{"item":"' .. item .. '"}]}')
end

function common.show(name)
  return wrk.format("GET", "/reservations/" .. name)
end

function common.replay(name)
  return wrk.format("POST", "/reservations/" .. name .. "/replay-alarm",
    { ["Content-Type"] = "application/json" }, '{"now":1}')
end

-- Each script's `unexpected` lives in its thread; `done` runs in another Lua state and
-- can only read globals of threads, so the scripts keep it as a global.
local threads = {}

function common.setup(thread)
  table.insert(threads, thread)
end

function common.done(summary, latency)
  local unexpected = summary.errors.connect + summary.errors.read + summary.errors.write
    + summary.errors.timeout
  for _, thread in ipairs(threads) do unexpected = unexpected + (thread:get("unexpected") or 0) end
  io.write(string.format(
    'RESULT {"perSecond": %.1f, "p50Ms": %.3f, "p99Ms": %.3f, "unexpected": %d, "answers": %d}\n',
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1000,
    latency:percentile(99) / 1000, unexpected, summary.requests))
end

return common
