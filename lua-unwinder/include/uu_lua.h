/* uu_lua.h - registration of Lua states by the program that embeds them, for C.
 *
 * Most programs do not need it: under `uu record`, Lua's frames are found in every program, also in stripped and static
 * ones, as long as the loop of its Lua (luaV_execute) keeps its lua_State at the place that the analysis of the
 * program's file found. Where the loop was compiled or changed in such a way that it does not, Lua's frames are
 * missing, and the summary counts the samples as doubtful. A program that registers its states gets these frames, too:
 * the plugin searches the registers and slots of the loop's frames for a state that belongs to a registered one (that
 * has the same global_State; so its coroutines are found as well), and caches the place where it was found.
 *
 *     lua_State *L = luaL_newstate();
 *     uu_lua_register(L);               once for each state that luaL_newstate() or lua_newstate() made
 *     ...
 *     uu_lua_unregister(L);             before lua_close()
 *     lua_close(L);
 *
 * PUC Lua 5.1 to 5.5 and LuaJIT 2.1. LuaJIT's states are found by the registers and the frames of its machine code in
 * all builds; they may be registered, which has no effect.
 *
 * No library has to be linked: the functions look up libuunwind.so.0, which is loaded in a program that is being
 * recorded, and do nothing elsewhere. Any thread may call them at any time, also while the state runs, but not in a
 * signal handler. (With a C library older than glibc 2.34, link with -ldl.) This header needs C99 or C++98.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_LUA_H
#define UU_LUA_H

#ifndef UU_OPTIONAL
#define UU_OPTIONAL
#endif
#include "uu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State; /* lua.h */

/* `what` of uu_plugin_call("lua", what, L, 0). */
#define UU_LUA_REGISTER 1u
#define UU_LUA_UNREGISTER 2u

/* Registers a state. The memory at `L` is checked: anything that is no state is refused, and does no harm.
 *
 * 0, also when it was registered before. -EINVAL: `L` is null, or no state of a supported Lua (its fields do not
 * agree). -ENOMEM: 64 states are registered. -ENOENT: this program is not being recorded, or without the Lua plugin.
 * Thread-safe. Not async-signal-safe. */
static inline int uu_lua_register(struct lua_State *L) {
    return uu_optional_plugin_call("lua", UU_LUA_REGISTER, (void *)L, 0);
}

/* Unregisters a state that is about to be closed: its memory will be used for something else. `L` as it was registered.
 *
 * 0; -ENOENT: it is not registered, or as above; -EINVAL: `L` is null. Thread-safe. Not async-signal-safe. */
static inline int uu_lua_unregister(struct lua_State *L) {
    return uu_optional_plugin_call("lua", UU_LUA_UNREGISTER, (void *)L, 0);
}

#ifdef __cplusplus
}
#endif

#endif
