-- 70 % reads, 25 % creates, 5 % replays. tag of what is there, count, and fresh for new names.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local given, number = {}, 0

function init(args)
  given = common.arguments(args)
  math.randomseed(7)
end

function request()
  local dice, name = math.random(100), given.tag .. "-" .. math.random(given.count)
  if dice <= 70 then return common.show(name) end
  if dice <= 75 then return common.replay(name) end
  number = number + 1
  return common.hold(given.fresh .. "-" .. number)
end

function response(status)
  if status ~= 200 and status ~= 201 then unexpected = unexpected + 1 end
end
