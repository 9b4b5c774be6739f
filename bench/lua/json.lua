-- A JSON encoder: recursion over tables of many shapes, sorted keys, escapes.
local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" }
local encode

local function quote(text)
  return '"' .. text:gsub('["\\%c]', function(c) return escapes[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function array(list, out)
  out[#out + 1] = "["
  for i = 1, #list do
    if i > 1 then out[#out + 1] = "," end
    encode(list[i], out)
  end
  out[#out + 1] = "]"
end

local function object(map, out)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  out[#out + 1] = "{"
  for i, key in ipairs(keys) do
    if i > 1 then out[#out + 1] = "," end
    out[#out + 1] = quote(key) .. ":"
    encode(map[key], out)
  end
  out[#out + 1] = "}"
end

function encode(value, out)
  local kind = type(value)
  if kind == "table" then
    return (value[1] ~= nil and array or object)(value, out)
  elseif kind == "string" then
    out[#out + 1] = quote(value)
  elseif kind == "number" then
    out[#out + 1] = ("%.14g"):format(value)
  else
    out[#out + 1] = tostring(value)
  end
end

local function document(depth)
  if depth == 0 then return { name = 'leaf "x"\n', values = { 1, 2.5, -3e10, true } } end
  return { kind = "branch", depth = depth, children = { document(depth - 1), document(depth - 1) }, note = "a\tb\\c" }
end

return function(times)
  local tree = document(5)
  for _ = 1, times do
    local out = {}
    encode(tree, out)
    assert(#table.concat(out) > 1000)
  end
end
