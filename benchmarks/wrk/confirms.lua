-- Confirms holds that were put, each once, and stops. tag, count: what they are named.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local tag, count, number, answered = "x", 0, 0, 0

function init(args)
  args = common.arguments(args)
  tag, count = args.tag, args.count
end

-- Connections that are ahead of the last answer repeat the last name: the same answer, no event.
function request()
  number = math.min(number + 1, count)
  return wrk.format("POST", "/holds/" .. tag .. "-" .. number .. "/confirm",
    { ["Content-Type"] = "application/json" }, "{}")
end

function response(status)
  if status ~= 200 then unexpected = unexpected + 1 end
  answered = answered + 1
  if answered >= count then wrk.thread:stop() end
end
