-- Holds with one line each. tag: what the names begin with; pool: the item, else one for each.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local tag, pool, number = "x", nil, 0

function init(args)
  local given = common.arguments(args)
  tag, pool = given.tag, given.pool
end

function request()
  number = number + 1
  local name = tag .. "-" .. number
  return common.put(name, pool or name)
end

function response(status)
  if status ~= 201 then unexpected = unexpected + 1 end
end
