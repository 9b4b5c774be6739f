-- Planets that attract each other: arithmetic on fields.
local sqrt = math.sqrt

local function bodies()
  local all = {}
  for i = 1, 5 do
    local angle, distance = i * 1.3, i * i * 1.7 - 1.6
    all[i] = {
      x = distance * math.cos(angle), y = distance * math.sin(angle), z = 0.01 * i,
      vx = -math.sin(angle) / sqrt(distance), vy = math.cos(angle) / sqrt(distance), vz = 0.001 * i,
      mass = i == 1 and 1 or 0.001 / i,
    }
  end
  return all
end

local function advance(all, step)
  local count = #all
  for i = 1, count do
    local a = all[i]
    for j = i + 1, count do
      local b = all[j]
      local dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
      local square = dx * dx + dy * dy + dz * dz
      local pull = step / (square * sqrt(square))
      local of_a, of_b = a.mass * pull, b.mass * pull
      a.vx, a.vy, a.vz = a.vx - dx * of_b, a.vy - dy * of_b, a.vz - dz * of_b
      b.vx, b.vy, b.vz = b.vx + dx * of_a, b.vy + dy * of_a, b.vz + dz * of_a
    end
  end
  for i = 1, count do
    local a = all[i]
    a.x, a.y, a.z = a.x + step * a.vx, a.y + step * a.vy, a.z + step * a.vz
  end
end

return function(times)
  local all = bodies()
  for _ = 1, times do
    for _ = 1, 1000 do advance(all, 0.0001) end
  end
  assert(all[1].x == all[1].x)
end
