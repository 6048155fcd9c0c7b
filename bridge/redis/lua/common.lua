-- The stream of a thread, and what goes with it. All keys of a thread share a hash tag.
--   S stream: id is the offset; r run, f flags, e event, d data, k checkpoint, a attempt, i index, c counter; g instead: records before it were dropped
--   M hash:   last offset, born (first offset), c (records ever added), kn and kb (number and bytes of what is kept), pb (bytes that pass),
--             runs and open (kept runs, and those that go on), exp (when what is kept goes), lt and lr (highest offsets of tokens and other
--             records that were dropped), b:<instance> (number of its last batch), x (when the keys are to be given their time anew)
--   K list:   what is kept for replay: "offset kind bytes run"
--   P list:   what only passes: "offset bytes"
--   R hash:   of kept runs: <run>:o (1 goes on, 0 ended), <run>:t and <run>:r (as lt and lr); of runs with more attempts than one,
--             <run>:a (the newest)
local S, M, K, P, R = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local at = 0
local function arg() at = at + 1; return ARGV[at] end
local function num() return tonumber(arg()) end

local function parts(o)
  local dash = string.find(o, '-', 1, true)
  return tonumber(string.sub(o, 1, dash - 1)), tonumber(string.sub(o, dash + 1))
end
local function above(a, b)
  local a1, a2 = parts(a)
  local b1, b2 = parts(b)
  return a1 > b1 or a1 == b1 and a2 > b2
end
local function later(a, b)
  if not a or a == '' then return b end
  if not b or b == '' or above(a, b) then return a end
  return b
end
-- each calls a command with many arguments, as many at once as Lua's stack takes.
local function each(command, key, list)
  for i = 1, #list, 1000 do
    redis.call(command, key, unpack(list, i, math.min(i + 999, #list)))
  end
end

local now, ttl, keep, instance = num(), num(), num(), arg()
local f = redis.call('HMGET', M, 'last', 'born', 'c', 'kn', 'kb', 'pb', 'runs', 'open', 'exp', 'lt', 'lr', 'x', 'b:' .. instance)
local m = {
  last = f[1] or '0-0', born = f[2] or '', c = tonumber(f[3] or 0), kn = tonumber(f[4] or 0), kb = tonumber(f[5] or 0), pb = tonumber(f[6] or 0),
  runs = tonumber(f[7] or 0), open = tonumber(f[8] or 0), exp = tonumber(f[9] or 0), lt = f[10] or '', lr = f[11] or '',
  x = tonumber(f[12] or 0), batch = tonumber(f[13] or 0),
}
-- fresh: more has changed than what each record changes, or a key is new.
local fresh = false

-- save writes M. What changes seldom, and how long the keys live, is written when it has changed, and now and then.
local function save()
  if not fresh and now < m.x then
    redis.call('HSET', M, 'last', m.last, 'c', m.c, 'kn', m.kn, 'kb', m.kb, 'pb', m.pb, 'b:' .. instance, m.batch)
    return
  end
  -- The counter outlives what it counted: readers who wait tell a loss by it.
  local rest = keep
  if m.open == 0 then rest = math.min(keep, ttl + 60000) end
  redis.call('HSET', M, 'last', m.last, 'born', m.born, 'c', m.c, 'kn', m.kn, 'kb', m.kb, 'pb', m.pb, 'runs', m.runs, 'open', m.open, 'exp', m.exp,
    'lt', m.lt, 'lr', m.lr, 'x', now + math.min(30000, math.floor(rest / 10)), 'b:' .. instance, m.batch)
  redis.call('PEXPIRE', M, keep)
  for _, key in ipairs({S, K, P, R}) do redis.call('PEXPIRE', key, rest) end
end

-- entries reads what is kept.
local function entries()
  local list = redis.call('LRANGE', K, 0, -1)
  for i, text in ipairs(list) do
    local id, kind, size, run = string.match(text, '^(%S+) (%d) (%d+) (.*)$')
    list[i] = {id = id, kind = kind, size = tonumber(size), run = run, text = text}
  end
  return list
end

-- retain keeps those entries that a function says yes to.
local function retain(list, stays)
  local gone, left = {}, {}
  m.kn, m.kb, fresh = 0, 0, true
  for _, e in ipairs(list) do
    if stays(e) then
      left[#left + 1] = e.text
      m.kn, m.kb = m.kn + 1, m.kb + e.size
    else
      gone[#gone + 1] = e.id
    end
  end
  each('XDEL', S, gone)
  redis.call('DEL', K)
  each('RPUSH', K, left)
end

local function forgetAll()
  retain(entries(), function() return false end)
  redis.call('DEL', R)
  m.runs, m.open, m.lt, m.lr = 0, 0, '', ''
end

local function expire()
  if m.runs > 0 and m.open == 0 and now >= m.exp then
    forgetAll()
    return true
  end
end
