-- look tells where a stream is, and what is lost of it.
if expire() then save() end
local lost = {}
if m.lt ~= '' or m.lr ~= '' then lost = redis.call('HGETALL', R) end
return {m.last, m.born, m.c, m.lt, m.lr, lost}
