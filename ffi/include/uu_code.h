/* uu_code.h - for JITs and interpreters: code that no loaded object covers, and frames that are shown.
 *
 * A part of uu.h, which includes it and says what holds for all parts.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_CODE_H
#define UU_CODE_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows: code that no loaded object covers ------------------------------------------------------------------ */

/* How the frames of a window's code are stepped. */
enum uu_window_kind {
    UU_WINDOW_FRAME_POINTER = 1, /* every function keeps rbp as frame pointer, leaves too, prologues excepted */
    UU_WINDOW_OPAQUE = 2,        /* no unwind data: a walk stops here, with a reason */
    UU_WINDOW_EH_FRAME = 3,      /* `unwind` is a list of CIEs and FDEs, as in .eh_frame, without a header. With
                                    `functions`, each one's FDE is found by its table; without, the list is searched
                                    from its start (8,192 entries at most), once for each address */
    UU_WINDOW_SFRAME = 4,        /* `unwind` is an SFrame section (versions 1 to 3, AMD64) that lies where it was made
                                    for, and describes the caller and its rbp only */
    UU_WINDOW_RULE = 5,          /* `rule` gives the rule of an address */
    UU_WINDOW_STEPPER = 6,       /* `step` moves the cursor by itself */
    UU_WINDOW_CODE = 7           /* no unwind data: rules are made from the machine code, outside of the process, while
                                    it is recorded or looked at (uu dump). Its functions keep to the platform's calling
                                    convention: they end by returning, and keep the registers that it says. With
                                    `functions`, each is analysed by itself; without, `text` is the first byte of one.
                                    At most 256 KiB each, on x86-64. Register them once their code stands. Where there
                                    are no such rules, the frame pointer is followed, and the caller marked */
};

/* uu_window.flags */
#define UU_WINDOW_GROWING 1u    /* functions are still added to `functions`, and `published` counts them */
#define UU_WINDOW_DESCENDING 2u /* `functions` descends: each one lies below those before it. Otherwise it ascends */

/* One function of a window. An entry is written whole before it is published, and never changed but to a tombstone. */
struct uu_function {
    uint32_t start;    /* distance of its first byte from the window's `text` */
    uint32_t len;      /* bytes of code. 0: a tombstone. Stored alone, aligned, it retires the function: its unwind data
                          and its name are not looked at by walks that begin afterwards (uu_ticket(), uu_synchronize()).
                          Its code must not run any more, and its place not be used again while the window is
                          registered */
    uint32_t unwind;   /* UU_WINDOW_EH_FRAME: distance of its FDE from `unwind`. UU_NO_UNWIND: none, as if it were a
                          function of UU_WINDOW_CODE */
    uint32_t name_len; /* bytes of its name, without a NUL */
    const char *name;  /* UTF-8; null: none, or `uu_window.name` is asked */
};
#define UU_NO_UNWIND 0xffffffffu

/* Places in a rule: of the registers that a function keeps for its caller, in this order, and of the return address. */
#ifdef __aarch64__
#define UU_RULE_SLOTS 12 /* x19 to x29, return address */
#else
#define UU_RULE_SLOTS 7 /* rbx, rbp, r12, r13, r14, r15, return address */
#endif

/* A rule: how to get from a frame to its caller. Set `size` to sizeof(struct uu_rule) and `reserved` fields to zero. */
struct uu_rule {
    uint32_t size;       /* sizeof(struct uu_rule) */
    uint8_t kind;        /* UU_RULE_* */
    uint8_t reg;         /* DWARF number of the register: x86-64 6 rbp, 7 rsp; AArch64 29 x29, 31 sp */
    uint8_t reserved[2]; /* zero */
    int32_t offset;      /* bytes */
    int32_t addend;      /* bytes, with UU_RULE_DEREF: -32,768 to 32,767 */
    int16_t slots[UU_RULE_SLOTS]; /* where they were saved: words of 8 bytes from the CFA (on x86-64 the return address
                            as a rule at -1); or UU_SAME, UU_UNKNOWN. The return address: saved, or on AArch64 UU_SAME:
                            in x30 still. It may be signed there */
    int16_t reserved2;   /* zero */
};
#define UU_RULE_OFFSET 0u    /* CFA = register + offset */
#define UU_RULE_DEREF 1u     /* CFA = the word at register + offset, plus addend. Not on AArch64 */
#define UU_RULE_SIGNAL 2u    /* a signal frame: a ucontext lies at register + offset */
#define UU_RULE_END 3u       /* the outermost frame */
#define UU_SAME 32767        /* the register is the caller's still */
#define UU_UNKNOWN (-32768)  /* the caller's value is lost */

struct uu_view; /* uu_plugin.h */

/* A window. Zero the structure, and set `size` to sizeof(struct uu_window). What it points to stays readable and as
 * it is until the window is gone (uu_unregister_window() or uu_synchronize() returned 0); except that tables may
 * grow, as described there.
 *
 * `rule`, `step` and `name` run inside signal handlers: no allocation, no lock, nothing that is not
 * async-signal-safe, little stack, and foreign memory only where it can be read for sure. While a program is
 * recorded, a call that faults or does not come back is abandoned and counted, and after three such failures the
 * window's functions are not called any more. In uu_capture() and uu_walk(), a fault of theirs is the program's. */
struct uu_window {
    uint32_t size;        /* sizeof(struct uu_window) */
    uint32_t kind;        /* enum uu_window_kind */
    const void *text;     /* first address: the window's key */
    size_t text_len;      /* bytes, not 0 */
    void *user;           /* the registrar's own: first argument of `rule` and `name`, and in `step`'s view */
    uint32_t flags;       /* UU_WINDOW_GROWING, UU_WINDOW_DESCENDING */
    uint32_t reserved0;   /* zero */
    const void *unwind;   /* UU_WINDOW_EH_FRAME, UU_WINDOW_SFRAME: unwind data; else null */
    size_t unwind_len;    /* its length in bytes */
    const struct uu_function *functions; /* functions, sorted; or null */
    size_t functions_room;               /* how many there are; of a growing table, how many it can hold. Below 2^32 */
    const uint64_t *published;           /* UU_WINDOW_GROWING: how many entries are valid; see uu_publish(). Else
                                            null */
    /* UU_WINDOW_RULE: fills `*rule` for `pc` and returns 1, or returns 0: none here. For a return address, `pc` is the
       address before it, inside the call. A pure function of `pc` as long as the window is registered: answers are
       cached (in a growing window, those of 0 are not). `*rule` comes as the one of a frame without saved registers. */
    uint32_t (*rule)(void *user, uint64_t pc, struct uu_rule *rule);
    /* UU_WINDOW_STEPPER: as `step` of a plugin; see uu_plugin.h. */
    uint32_t (*step)(struct uu_view *view);
    /* Or null. Writes the name of the function at `pc` to `buffer`, UTF-8, at most `room` (256) bytes, and its first
       address to `*start`. Returns the number of bytes written; 0: it has no name. Called once for an address while a
       program is recorded, and by uu_walk(). */
    size_t (*name)(void *user, uint64_t pc, char *buffer, size_t room, uint64_t *start);
    uint64_t reserved[3]; /* zero */
};

/* Registers a window; walks that begin afterwards see it. The structure is copied. Logarithmic in the number of
 * windows.
 *
 * -EINVAL   null or unaligned, another size, an empty range or one that reaches beyond 2^63, a field that the kind
 *           needs is not set, one that it does not use is set, or a reserved field is not zero
 * -ENOTSUP  a kind that this library does not support
 * -EEXIST   the range overlaps a registered window
 * -EBUSY    the range overlaps a window that is unlinked and that a walk may still read: uu_synchronize() first
 * -ENOMEM   no memory for the table
 * -EDEADLK  called inside a walk (by a plugin, or in a handler that interrupted one), or in a handler that interrupted
 *           one of these functions on the same thread
 *
 * Thread-safe. Not async-signal-safe: it takes a lock. Usable in the child of a fork, at once. */
int uu_register_window(const struct uu_window *window);

/* Takes the window with key `text` out of the table. Walks that begin afterwards do not see it; walks under way may
 * still read it until uu_synchronize(*ticket) returned 0. Any number of windows may wait for that. Logarithmic;
 * waits for no walk.
 *
 * -ENOENT no such window, -EINVAL `ticket` is null, -ENOMEM no memory, -EDEADLK as uu_register_window().
 * Thread-safe, not async-signal-safe. */
int uu_unlink_window(const void *text, uint64_t *ticket);

/* Takes `old_count` windows (by their keys) out and puts `new_count` others in, at once: a walk sees all of the old
 * ones and none of the new, or the other way round. New windows may lie where old ones did, also at the same
 * address: a new generation of the window. `*ticket` is for uu_synchronize(), and concerns the old ones. After an
 * error nothing has changed.
 *
 * Errors: as uu_register_window() and uu_unlink_window(). Thread-safe, not async-signal-safe. */
int uu_replace_windows(const void *const *old_texts, size_t old_count, const struct uu_window *windows,
                       size_t new_count, uint64_t *ticket);

/* No more functions are added to the growing window with key `text`: what walks did not find there, they need not
 * look for again. -ENOENT no such window, -EDEADLK as uu_register_window(). Thread-safe, not async-signal-safe. */
int uu_seal_window(const void *text);

/* A ticket for all walks that are under way now. Whoever waits for it knows that they have ended: after a tombstone,
 * its unwind data and name may then be freed. Thread-safe, async-signal-safe. */
uint64_t uu_ticket(void);

/* Waits until no walk is under way that began before `ticket` was given, at most `timeout_ns` nanoseconds (0: only
 * asks). One call serves all tickets up to this one. 0: the window's text may be wiped. -ETIMEDOUT: it may not, and
 * asking again is allowed. -EINVAL: no such ticket was given. -EDEADLK: called inside a walk.
 *
 * It means that no walk *reads* what was registered any more. Only the runtime can know whether a thread still
 * *executes* the text or returns into it. Thread-safe, not async-signal-safe. */
int uu_synchronize(uint64_t ticket, uint64_t timeout_ns);

/* Unlinks the window and waits for at most one second. 0: no walk can still read it; the text may be wiped.
 * -ETIMEDOUT: it is unlinked but pinned, and the text must not be wiped. Other errors as uu_unlink_window().
 * Thread-safe, not async-signal-safe. */
int uu_unregister_window(const void *text);

/* Makes the first `count` entries of a growing window's table valid. They have been written before; `published` is the
 * counter that the window was registered with. Never lowers it. By one thread at a time. Async-signal-safe. */
static inline void uu_publish(uint64_t *published, uint64_t count) {
    __atomic_store_n(published, count, __ATOMIC_RELEASE);
}

/* Makes an entry of a window's table a tombstone. Async-signal-safe. */
static inline void uu_retire(struct uu_function *function) { __atomic_store_n(&function->len, 0, __ATOMIC_RELEASE); }

/* ---- Interpreters that show their frames themselves -----------------------------------------------------------------
 *
 * An embedder's interpreter needs no plugin to be seen under `uu record`. It marks the code of its loop, gives each of
 * its functions an id, and keeps, for each thread that runs it, a list of the frames that run, innermost first:
 *
 *     uu_mark_interpreter(loop, 0);                            once
 *     function->id = uu_intern("f", "prog.lang", 12);          once for each function
 *     uu_publish_frames(&vm->frames);                          once for each thread
 *
 *     value loop(vm, function) {                               one C call may run many frames
 *         struct uu_frame_record record;
 *         uu_push_frame(&vm->frames, &record, &record, function->id, 12);
 *         ... record.line = 13; ...
 *         uu_pop_frame(&vm->frames, &record);
 *
 * In a stack, the frames of the list stand before (nearer the leaf than) the native frame of marked code that hosts
 * them: the one inside which their `activation` lies. While no recorder runs, nothing but these stores is done. */

/* A frame that runs. It may lie anywhere, and is read while its thread is interrupted at any instruction. */
struct uu_frame_record {
    struct uu_frame_record *outer; /* its caller's; null for the outermost */
    const void *activation;        /* an address inside the native frame of the marked code that runs it: of a local
                                      variable there, or of the record itself if it is one. Callers within one C call
                                      share it */
    uint32_t name;                 /* of uu_intern(); 0: without a name */
    uint32_t line;                 /* that executes; may be stored at any time */
};

/* An id for a function of the language, for ever. Texts are UTF-8, copied, and cut after 1,024 bytes; the same three
 * arguments give the same id. 0: no room (1,048,576 functions), no memory, or called in a handler that interrupted
 * this very function. `function` and `file` may be null: empty. Thread-safe. Not async-signal-safe. */
uint32_t uu_intern(const char *function, const char *file, uint32_t first_line);

/* Sets where the calling thread keeps the innermost frame record; `*head` is null while none runs. Null withdraws
 * it, which must be done before that memory is used for something else, unless the thread ends. In the child of a
 * fork it stays for the thread that forked. 0, or -ENOMEM: no place for this thread, as in uu_capture().
 * Thread-safe, async-signal-safe. */
int uu_publish_frames(struct uu_frame_record *const *head);

/* Marks the code at [text, text + len) as that of an interpreter whose frames are published: its native frames are
 * shown to be the interpreter's, and host what lies inside them. A `len` of 0: the whole function that begins at
 * `text`, by its unwind information. The range must lie inside one loaded object (for code made at run time, register a
 * window). Code that the compiler moved elsewhere, such as a cold part, is another range.
 *
 * -EINVAL  `text` is null, or the range wraps around
 * -ENOENT  no object covers it; or `len` is 0, and no function with unwind information begins at `text` (after
 *          uu_setup(): .debug_frame, too)
 * -EEXIST  it overlaps a marked range
 * -ENOMEM  64 ranges are marked
 *
 * Thread-safe, not async-signal-safe. */
int uu_mark_interpreter(const void *text, size_t len);

/* The range that begins at `text` is no interpreter's any more: to be called before its object is unloaded. -ENOENT:
 * none does. Thread-safe, not async-signal-safe. */
int uu_unmark_interpreter(const void *text);

/* Adds a frame that begins to run, and takes the innermost one away. The record stands whole before it can be seen. By
 * the list's own thread only; there async-signal-safe, if a handler takes away what it has added. */
static inline void uu_push_frame(struct uu_frame_record **head, struct uu_frame_record *record, const void *activation,
                                 uint32_t name, uint32_t line) {
    record->outer = *head;
    record->activation = activation;
    record->name = name;
    record->line = line;
    __atomic_signal_fence(__ATOMIC_RELEASE);
    __atomic_store_n(head, record, __ATOMIC_RELAXED);
}
static inline void uu_pop_frame(struct uu_frame_record **head, const struct uu_frame_record *record) {
    __atomic_store_n(head, record->outer, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif

#endif /* UU_CODE_H */
