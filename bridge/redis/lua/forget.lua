-- forget drops what is kept of a run; or, when it is empty, of all runs without kept records above an offset. What passes stays for those who are reading.
local run, bound = arg(), arg()
if run ~= '' and redis.call('HEXISTS', R, run .. ':o') == 0 then return 0 end
local list = entries()
local since = {}
if run == '' then
  for _, e in ipairs(list) do
    if above(e.id, bound) then since[e.run] = true end
  end
end
local function gone(r) return r == run or run == '' and not since[r] end

local fields = redis.call('HGETALL', R)
local drop, any = {}, false
m.lt, m.lr = '', ''
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  local r, kind = string.sub(field, 1, -3), string.sub(field, -2)
  if gone(r) then
    drop[#drop + 1] = field
    if kind == ':o' then
      any = true
      m.runs = m.runs - 1
      if value == '1' then m.open, m.exp = m.open - 1, now + ttl end
    end
  elseif kind == ':t' then m.lt = later(m.lt, value)
  elseif kind == ':r' then m.lr = later(m.lr, value) end
end
if not any then return 0 end
each('HDEL', R, drop)
retain(list, function(e) return not gone(e.run) end)
save()
return 1
