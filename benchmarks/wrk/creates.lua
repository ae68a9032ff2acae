-- Holds of new names. tag: what the names begin with.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local tag, ttl, number = "x", 3600, 0

function init(args)
  local given = common.arguments(args)
  tag, ttl = given.tag, given.ttl or ttl
end

function request()
  number = number + 1
  return common.hold(tag .. "-" .. number, ttl)
end

function response(status)
  if status ~= 201 then unexpected = unexpected + 1 end
end
