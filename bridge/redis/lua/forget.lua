-- forget drops what is kept of a run, or of all when it is empty. What passes stays for those who are reading.
local run = arg()
if run == '' then
  forgetAll()
  save()
  return 1
end
local open = redis.call('HGET', R, run .. ':o')
if not open then return 0 end
if open == '1' then m.open, m.exp = m.open - 1, now + ttl end
m.runs = m.runs - 1
redis.call('HDEL', R, run .. ':o', run .. ':t', run .. ':r', run .. ':a')
retain(entries(), function(e) return e.run ~= run end)
m.lt, m.lr = '', ''
local left = redis.call('HGETALL', R)
for i = 1, #left, 2 do
  local field = string.sub(left[i], -2)
  if field == ':t' then m.lt = later(m.lt, left[i + 1]) elseif field == ':r' then m.lr = later(m.lr, left[i + 1]) end
end
save()
return 1
