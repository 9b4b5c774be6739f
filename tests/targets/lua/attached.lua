-- Computes in known functions, for ever. "ready" is written first.
local function turns(n)
    local total = 0
    for i = 1, n do
        total = total + i % 7
    end
    return total
end

local function middle()
    return (turns(100000))
end

local function outer()
    while true do
        local kept = middle()
    end
end

print("ready")
io.flush()
outer()
