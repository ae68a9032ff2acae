-- Reads of one name, or of names spread at random. name, or tag and count.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local given = {}

function init(args)
  given = common.arguments(args)
  math.randomseed(7)
end

function request()
  if given.name then return common.show(given.name) end
  return common.show(given.tag .. "-" .. math.random(given.count))
end

function response(status)
  if status ~= 200 then unexpected = unexpected + 1 end
end
