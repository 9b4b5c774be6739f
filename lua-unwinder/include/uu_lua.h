/* uu_lua.h - what an embedder of Lua may tell about its states, for C.
 *
 * There is no need to: under `uu record`, Lua's frames are found in every program, stripped and static as it may be, as long
 * as the loop of its Lua (luaV_execute) keeps its lua_State where the analysis of the program's file says. Where the loop
 * was compiled or changed in such a way that it does not, Lua's frames are missing, and the summary counts them as doubtful.
 * A program that registers its states is then shown whole: a state that belongs to a registered one (the same
 * global_State, so its coroutines too) is looked for in the registers and slots of the loop's frames, and where it was found
 * is remembered.
 *
 *     lua_State *L = luaL_newstate();
 *     uu_lua_register(L);               once for each state that luaL_newstate() or lua_newstate() made
 *     ...
 *     uu_lua_unregister(L);             before lua_close()
 *     lua_close(L);
 *
 * PUC Lua 5.1 to 5.5 and LuaJIT 2.1. LuaJIT's states are found by the registers and the frames of its machine code, in all
 * builds; they may be registered, and nothing comes of it.
 *
 * Nothing is linked: the functions find libuu.so.0 where it is, which is in a program that is being recorded, and do nothing
 * elsewhere. They may be called by any thread, at any time, also while the state runs; but not in a signal handler. (On
 * systems whose C library is older than glibc 2.34, link with -ldl.) This header needs C99 or C++98.
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

/* Tells of a state. It is read with care: what is no state is refused, and does no harm.
 *
 * 0, also when it was registered before. -EINVAL: `L` is null, or no state of a Lua that is served (its parts do not agree).
 * -ENOMEM: 64 states are registered. -ENOENT: this program is not being recorded, or without the Lua plugin.
 * Thread-safe. Not async-signal-safe. */
static inline int uu_lua_register(struct lua_State *L) {
    return uu_optional_plugin_call("lua", UU_LUA_REGISTER, (void *)L, 0);
}

/* The state is about to be closed: its memory will be something else's. `L` as it was registered.
 *
 * 0; -ENOENT: it is not registered, or as above; -EINVAL: `L` is null. Thread-safe. Not async-signal-safe. */
static inline int uu_lua_unregister(struct lua_State *L) {
    return uu_optional_plugin_call("lua", UU_LUA_UNREGISTER, (void *)L, 0);
}

#ifdef __cplusplus
}
#endif

#endif
