/* uu.h - the universal unwinder, for C.
 *
 * Link with -luu, or find the functions in libuu.so.0 with dlsym. Every function tells whether it may be called in a
 * signal handler. Unless said otherwise, functions that can fail return 0 or a negative errno, and set errno never.
 *
 * This interface is young: before version 1.0 it may still change. uu_abi() tells which one a library has.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_H
#define UU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this header describes. */
#define UU_ABI 0u

/* The interface that the library has. Thread-safe, async-signal-safe. */
uint32_t uu_abi(void);

/* ---- Stacks ------------------------------------------------------------------------------------------------------ */

/* A frame word, as uu_capture() writes it: flags in bits 63..60, kind in bits 59..56, address in bits 55..0. */
#define UU_FRAME_ADDRESS(word) ((word) & 0x00ffffffffffffffu)
#define UU_FRAME_KIND(word) (((word) >> 56) & 0xfu)
#define UU_FRAME_NATIVE 1u                         /* the only kind that uu_capture() writes */
#define UU_FRAME_EXACT (UINT64_C(1) << 60)         /* an interrupted instruction; otherwise a return address: the call
                                                      is before it, so look up address - 1 */
#define UU_FRAME_BY_FRAME_POINTER (UINT64_C(1) << 61) /* found by following a frame pointer; nothing vouches for it */

/* Why a walk ended. Numbers never change their meaning. */
enum uu_stop {
    UU_STOP_COMPLETE = 1,          /* the outermost frame was reached */
    UU_STOP_START_SYMBOL = 2,      /* a function that begins stacks was reached (makecontext) */
    UU_STOP_FRAME_POINTER_END = 3, /* a chain of frame pointers ended */
    UU_STOP_TOO_MANY_FRAMES = 10,  /* more than 4096; those nearest the leaf were kept */
    UU_STOP_BUFFER_FULL = 11,      /* more than `capacity`; those nearest the leaf were kept */
    UU_STOP_NO_OWNER = 20,         /* no object and no window covers an address */
    UU_STOP_NO_RULE = 21,          /* an object has no unwind information for an address */
    UU_STOP_BAD_UNWIND_INFO = 22,  /* damaged unwind information */
    UU_STOP_UNSUPPORTED_RULE = 23, /* a rule that this version does not know */
    UU_STOP_UNKNOWN_REGISTER = 24, /* a rule needs a register that is lost */
    UU_STOP_BAD_CFA = 25,          /* the stack does not grow outwards */
    UU_STOP_NULL_RETURN_ADDRESS = 26,
    UU_STOP_OPAQUE_WINDOW = 27,    /* a window says: stop here */
    UU_STOP_PLUGIN_LOST = 28,      /* the unwinder that steps this code cannot tell the caller */
    UU_STOP_UNREADABLE_STACK = 50,
    UU_STOP_UNREADABLE_UNWIND_INFO = 51,
    UU_STOP_FAULT = 60,            /* also: this thread is inside a walk already */
    UU_STOP_WATCHDOG = 61,
    UU_STOP_PLUGIN_NONSENSE = 62   /* ends no walk; counted under the plugin's name */
};

/* Captures the native stack of the calling thread into `frames`, leaf first, at most `capacity` words. Returns the
 * number of words written. `*stop`, unless `stop` is null, tells why the walk ended (enum uu_stop).
 *
 * `ucontext`: null, and the first frame is the caller; or the third argument of a signal handler that is now running on
 * this thread, and the first frame is the interrupted one.
 *
 * Thread-safe. Async-signal-safe: no allocation, no lock. Memory is asked for with a system call a page before it is read
 * first, unless uu_handle_faults() was called. Called in a handler that interrupted a walk of the same thread, it returns 0 and UU_STOP_FAULT. About 1 KiB of
 * stack. */
size_t uu_capture(uint64_t *frames, size_t capacity, const void *ucontext, uint16_t *stop);

/* Makes uu_capture() faster: takes SIGSEGV and SIGBUS over, so that a page need not be asked for before it is read. A fault
 * of the library's own loads is mended; every other one goes to the handler that was installed before, or has its default
 * action. From then on uu_capture() must be called with both signals unblocked (a handler that calls it must not have
 * them in its mask), and a handler that the program installs later for one of them must chain to the one it replaced.
 *
 * Under `uu record` there is no need: the sampler does this for itself, and the program's own handlers stay its own.
 *
 * 0, also when it was called before; -EBUSY while another thread is in this call; -EIO if the handlers cannot be
 * installed. Thread-safe. Not async-signal-safe. */
int uu_handle_faults(void);

/* ---- Windows: code that no loaded object covers -------------------------------------------------------------------- */

/* How the frames of a window's code are stepped. */
enum uu_window_kind {
    UU_WINDOW_FRAME_POINTER = 1, /* every function keeps rbp as frame pointer, prologues excepted */
    UU_WINDOW_OPAQUE = 2         /* nobody can tell: a walk stops here, with a reason */
};

/* A window. Set `size` to sizeof(struct uu_window) and `reserved` to zero. */
struct uu_window {
    uint32_t size;        /* sizeof(struct uu_window) */
    uint32_t kind;        /* enum uu_window_kind */
    const void *text;     /* first address: the window's key */
    size_t text_len;      /* bytes, not 0 */
    void *user;           /* the registrar's own; not looked at */
    uint64_t reserved[4]; /* zero */
};

/* Registers a window; walks that begin afterwards see it. The structure is copied.
 *
 * -EINVAL     null, another size, an empty or wrapping range, reserved fields not zero
 * -ENOTSUP    a kind that this library does not know
 * -EEXIST     the range overlaps a registered window
 * -EBUSY      a window with this key is unlinked, and walks may still read it: uu_synchronize() first
 * -ENOMEM     no memory for the table
 * -EDEADLK    called inside a walk (by a plugin, or in a handler that interrupted one)
 *
 * Thread-safe. Not async-signal-safe: it takes a lock. Usable in the child of a fork, at once. */
int uu_register_window(const struct uu_window *window);

/* Takes the window with key `text` out of the table. Walks that begin afterwards do not see it; walks under way may still
 * read it until uu_synchronize(*ticket) returned 0.
 *
 * -ENOENT no such window, -EINVAL `ticket` is null, -ENOMEM no memory (also: 64 windows wait to be synchronized), -EDEADLK inside a walk.
 * Thread-safe, not async-signal-safe. */
int uu_unlink_window(const void *text, uint64_t *ticket);

/* Waits until no walk is under way that began before `ticket` was given, at most `timeout_ns` nanoseconds (0: only asks).
 * One call serves all tickets up to this one. 0: the window's text may be wiped. -ETIMEDOUT: it may not, and asking again
 * is allowed. -EDEADLK: called inside a walk.
 *
 * This tells that nobody *reads* what was registered. That nobody *executes* or returns into the text is for the runtime
 * to know. Thread-safe, not async-signal-safe. */
int uu_synchronize(uint64_t ticket, uint64_t timeout_ns);

/* Unlinks the window and waits for at most one second. 0: nobody can still read it; the text may be wiped. -ETIMEDOUT: it
 * is unlinked but pinned, and the text must not be wiped. Other errors as uu_unlink_window(). Thread-safe, not
 * async-signal-safe. */
int uu_unregister_window(const void *text);

#ifdef __cplusplus
}
#endif

#endif
