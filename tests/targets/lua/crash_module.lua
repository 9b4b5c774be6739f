package.cpath = arg[1]
local function inner()
    require("crash_module")
    return 1
end
local function outer()
    inner()
    return 1
end
outer()
