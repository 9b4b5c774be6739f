/* uu.h - the universal unwinder, for C.
 *
 * Link with -luunwind, or find the functions in libuunwind.so.0 with dlsym. Each function says whether it may be called
 * in a signal handler. Unless said otherwise, functions that can fail return 0 or a negative errno; none sets errno.
 *
 * A process has one registry, that of libuunwind.so.0: what is registered in it is seen by everybody who walks, and `uu
 * record` uses it, too. libuunwind.a is for programs whose own walks are the only ones: linked into the program (not
 * into an object that is unloaded), it is a second registry beside that of a libuunwind.so.0 in the same process; each
 * sees only the windows, marks and frame records that it was given. It looks for uu/libuunwind-setup.so in the
 * program's folder. The program still needs the dynamic loader, which says where objects are: linked with -static, its
 * stacks end after the first frames, or follow frame pointers alone. This interface is young: before version 1.0 it may
 * still change. uu_abi() returns the version that a library has.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_H
#define UU_H
#include <stddef.h>
#include <stdint.h>

#include "uu_stack.h" /* stacks */
#include "uu_crash.h" /* crash reports */
#include "uu_code.h"  /* windows, and interpreters that show their frames themselves */
#include "uu_record.h" /* while `uu record` runs: pauses, and labels of threads */

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this header describes. */
#define UU_ABI 1u

/* The interface that the library has. Thread-safe, async-signal-safe. */
uint32_t uu_abi(void);

/* ---- Plugins ----------------------------------------------------------------------------------------------------- */

/* Unwinders for interpreters and the like are shared objects of their own; uu_plugin.h describes how one is written,
 * and which of its faults do no harm to the program. Plugins are opened when a program starts under `uu record`, and by
 * uu_setup().
 *
 * What cannot be contained: writes to where a plugin should not write; a stack pointer that it destroys, or a stack
 * that it overflows, on a thread without an alternate signal stack; loops where no sampling timer runs. */

/* A request to the plugin called `plugin`: `what`, `argument` and `size` are as that plugin's own header says.
 *
 * What the plugin answers, 0 or a negative errno; -ENOENT: no such plugin is open; -ENOSYS: the plugin takes no
 * requests, or not this one; -EINVAL: `plugin` is null. Thread-safe. Not async-signal-safe, unless the plugin's header
 * says so. */
int uu_plugin_call(const char *plugin, uint32_t what, void *argument, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* UU_H */

#include "uu_optional.h" /* with UU_OPTIONAL: calls of a library that may be absent */
