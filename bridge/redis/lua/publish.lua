-- publish adds a batch of an instance: what was dropped before it, and its records. A batch that comes again is not added again.
local maxRecords, maxBytes, liveRecords, liveBytes, liveTTL = num(), num(), num(), num(), num()
local batch, sent, born = num(), arg(), arg()
if m.batch >= batch then return 0 end
m.batch = batch
expire()

-- What passes stays a while for readers that are behind. Judged before the batch is added, as how far they are behind it says nothing.
-- An instance whose clock is ahead of Redis must not remove what others have just added. A user may lack the right to ask for its time.
local clock, oldest = redis.pcall('TIME'), now - liveTTL
if not clock.err then oldest = math.min(oldest, clock[1] * 1000 + math.floor(clock[2] / 1000) - liveTTL) end
local passing = m.pb > 0 and redis.call('LLEN', P) or 0
local gone = {}
while passing > 0 do
  local id, size = string.match(redis.call('LINDEX', P, 0), '^(%S+) (%d+)$')
  if passing <= liveRecords and m.pb <= liveBytes and parts(id) >= oldest then break end
  redis.call('LPOP', P)
  gone[#gone + 1] = id
  passing, m.pb = passing - 1, m.pb - tonumber(size)
end
each('XDEL', S, gone)
if passing == 0 then m.pb = 0 end -- P expires before M does

local lastMS, lastN = parts(m.last)
local function add(id, ...)
  local ms, n = parts(id)
  if ms < lastMS or ms == lastMS and n <= lastN then -- another instance was here first
    if n == 0 or n % 1024 ~= 0 then
      ms, n = lastMS, lastN + 1
    elseif n > lastN then -- a numbered record is known by its n
      ms = lastMS
    else
      ms = lastMS + 1
    end
    id = string.format('%.0f-%.0f', ms, n)
  end
  redis.call('XADD', S, id, ...)
  m.last, lastMS, lastN = id, ms, n
  if m.born == '' then m.born, fresh = id, true end
  return id
end
local toPass, toKeep = {}, {}
local function pass(id, size)
  if m.pb == 0 then fresh = true end
  toPass[#toPass + 1] = id .. ' ' .. size
  m.pb = m.pb + size
end
-- of gives what R has about a run: o as it is there, and a as a number.
local runs = {}
local function of(run)
  local r = runs[run]
  if not r then
    local has = redis.call('HMGET', R, run .. ':o', run .. ':a')
    r = {o = has[1], a = tonumber(has[2] or 1)}
    runs[run] = r
  end
  return r
end
local function open(run, o)
  of(run).o, fresh = o, true
  redis.call('HSET', R, run .. ':o', o)
end
local function begin(run)
  if of(run).o then return false end
  open(run, '1')
  m.runs, m.open = m.runs + 1, m.open + 1
  return true
end
local function lose(run, field, all, offset)
  fresh = true
  redis.call('HSET', R, run .. field, later(redis.call('HGET', R, run .. field), offset))
  m[all] = later(m[all], offset)
end

-- What this instance had sent before is not there any more: Redis came back with less than it had. A stream that was begun again may have records of
-- another instance, whose clock is ahead.
local lost = sent ~= '' and (above(sent, m.last) or born ~= '' and born ~= m.born) and sent or nil
if lost then
  if m.c > 0 then m.c = m.c + 1 end -- so that readers notice; those who had read nothing notice the restart
  local known = redis.call('HGETALL', R)
  for i = 1, #known, 2 do
    local run = string.match(known[i], '^(.*):o$')
    if run and known[i + 1] == '1' then lose(run, ':r', 'lr', lost) end
  end
end

local dropped = num()
for _ = 1, num() do
  local run, tokens, records = arg(), arg(), arg()
  begin(run)
  if tokens ~= '' then lose(run, ':t', 'lt', tokens) end
  if records ~= '' then lose(run, ':r', 'lr', records) end
end
if dropped > 0 then
  m.c = m.c + dropped
  pass(add(arg(), 'g', 1, 'c', m.c), 160)
end

-- overtaken tells what an attempt says when a newer one has begun: an instance that stood still does not know yet.
local function overtaken(run, attempt)
  if attempt == 0 then return false end
  local r = of(run)
  if attempt > r.a then
    redis.call('HSET', R, run .. ':a', attempt)
    r.a, fresh = attempt, true
  end
  return attempt < r.a
end

local refused = 0
local function publish(given, run, flags, event, data, checkpoint, size, attempt, index)
  if overtaken(run, attempt) then
    refused = refused + 1
    return
  end
  local id
  local kind, kept, ephemeral = flags % 4, math.floor(flags / 4) % 2 == 1, math.floor(flags / 8) % 2 == 1
  m.c = m.c + 1
  if checkpoint ~= '' then
    id = add(given, 'r', run, 'f', flags, 'e', event, 'd', data, 'c', m.c, 'a', attempt, 'i', index, 'k', checkpoint)
  elseif index > 0 or attempt > 1 then
    id = add(given, 'r', run, 'f', flags, 'e', event, 'd', data, 'c', m.c, 'a', attempt, 'i', index)
  else
    id = add(given, 'r', run, 'f', flags, 'e', event, 'd', data, 'c', m.c)
  end
  if kept and begin(run) and lost then lose(run, ':r', 'lr', lost) end
  if kind == 2 and of(run).o == '1' then
    open(run, '0')
    m.open, m.exp = m.open - 1, parts(given) + ttl -- from when it was published, not sent
  end
  if kept and not ephemeral then
    toKeep[#toKeep + 1] = id .. ' ' .. kind .. ' ' .. size .. ' ' .. run
    m.kn, m.kb = m.kn + 1, m.kb + size
  else
    pass(id, size)
  end
end
for _ = 1, num() do
  publish(arg(), arg(), arg(), arg(), arg(), arg(), num(), num(), num())
end
each('RPUSH', P, toPass)
each('RPUSH', K, toKeep)

-- Above its bounds a thread loses tokens first, then the oldest records, those of running runs last, until an eighth is free again.
if m.kn > maxRecords or m.kb > maxBytes then
  local list, n, bytes = entries(), m.kn, m.kb
  local records, size = maxRecords - math.floor(maxRecords / 8), maxBytes - math.floor(maxBytes / 8)
  for _, may in ipairs({
    function(e) return e.kind == '1' end,
    function(e) return of(e.run).o ~= '1' end,
    function() return true end,
  }) do
    for _, e in ipairs(list) do
      if n <= records and bytes <= size then break end
      if not e.gone and may(e) then
        e.gone = true
        n, bytes = n - 1, bytes - e.size
        if e.kind == '1' then lose(e.run, ':t', 'lt', e.id) else lose(e.run, ':r', 'lr', e.id) end
      end
    end
  end
  retain(list, function(e) return not e.gone end)
end
save()
return {1, refused, m.last, m.born}
