-- Confirms holds that were put, each once. tag: what their names begin with.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local tag, number = "x", 0

function init(args)
  tag = common.arguments(args).tag
end

function request()
  number = number + 1
  return wrk.format("POST", "/holds/" .. tag .. "-" .. number .. "/confirm",
    { ["Content-Type"] = "application/json" }, "{}")
end

function response(status)
  if status ~= 200 then unexpected = unexpected + 1 end
end
