-- Holds of names that are held already, in turn. tag and count.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local common = require("common")
unexpected = 0
setup, done = common.setup, common.done
local given, number = {}, 0

function init(args)
  given = common.arguments(args)
end

function request()
  number = number % given.count + 1
  return common.hold(given.tag .. "-" .. number)
end

function response(status)
  if status ~= 201 then unexpected = unexpected + 1 end
end
