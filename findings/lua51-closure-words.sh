#!/usr/bin/env bash
# luac of Lua 5.1 lists words as instructions that are never executed, and that seem to change a called register.
#
# Versions   Lua 5.1.5 (Debian 12, lua5.1 5.1.5-9, with luac5.1), x86-64
# Seen       A function that begins with take(function() return up end) has five instructions in luac's listing. Of the
#            third, GETUPVAL of `up` into register 0, which GETGLOBAL had just given the function to call, nothing is
#            ever executed: a hook for each instruction comes four times, and the name that the call gives is "take".
# Cause      After CLOSURE, 5.1 has a word for each upvalue of the new closure, which says where that comes from, in the
#            form of MOVE or GETUPVAL with register 0. luac lists them like others. Later versions have none.
# Matters    to all that read this bytecode, or the listing: to tell what a register holds at a call, as a profiler does
#            that names functions by their calls, as many words have to be left out as the inner function has upvalues,
#            which stands in the inner function only.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get -qq download 'lua5.1=5.1.5-9' 'liblua5.1-0=5.1.5-9'
for package in *.deb; do
    dpkg -x "$package" unpacked
done
export LD_LIBRARY_PATH=$PWD/unpacked/usr/lib/x86_64-linux-gnu
cat >words.lua <<'END'
local up = 1
function take(f) name = debug.getinfo(1, "n").name end
local function first()
  take(function() return up end)
end
local executed = 0
debug.sethook(function() if debug.getinfo(2, "f").func == first then executed = executed + 1 end end, "", 1)
first()
debug.sethook()
print(executed .. " executed, the call's name is " .. name)
END
unpacked/usr/bin/luac5.1 -l -p words.lua | sed -n '/<words.lua:3,5>/,/^$/p' |
    sed -nE 's/^\t[0-9]+\t\[[0-9]+\]\t([A-Z]+) *\t(.*)$/\1 \2/p' |
    sed -E 's/; 0x[0-9a-f]+$//; s/[ \t]+/ /g; s/ $//' >said
unpacked/usr/bin/lua5.1 words.lua >>said
cat said
cat >expected <<'END'
GETGLOBAL 0 -1 ; take
CLOSURE 1 0
GETUPVAL 0 0 ; up
CALL 0 2 1
RETURN 0 1
4 executed, the call's name is take
END
cmp said expected || {
    echo "changed"
    exit 1
}
