/* uu_optional.h - for programs that must also run without the library.
 *
 * The last part of uu.h, which includes it: it names the functions of the others, so it is not included by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* ---- For programs that must also run without the library ------------------------------------------------------------
 *
 * With UU_OPTIONAL defined before this header is included, uu_optional_NAME() calls uu_NAME() of the library if it is
 * in the process, linked, preloaded or opened by anybody; else it returns -ENOSYS, or 0 where the result is no int
 * (uu_optional_capture() and others: nothing is written), or does nothing. Nothing is linked. A function that was found
 * is cached. While the library is absent, it is searched for again only after the loader has loaded an object, so that
 * a call costs a fraction of a microsecond. A search leaves errno as it was; it takes away a message that is waiting
 * for dlerror(3). Thread-safe. Async-signal-safe, where uu_NAME() is, only once a call of this function in the same
 * source file has found it. They are inlined, so that a stack begins with their caller. Where the header was included
 * without UU_OPTIONAL before, it may be included once more with it. */
#if defined(UU_OPTIONAL) && !defined(UU_OPTIONAL_FUNCTION)
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* <link.h> declares it for _GNU_SOURCE only (dl_iterate_phdr(3)). */
struct dl_phdr_info;
extern int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);
static inline int uu_optional_loads(struct dl_phdr_info *info, size_t size, void *loads) {
    enum { ADDS = 4 * sizeof(void *) }; /* dlpi_adds, after dlpi_addr, dlpi_name, dlpi_phdr and dlpi_phnum */
    if (size >= ADDS + sizeof(unsigned long long))
        memcpy(loads, (const char *)(const void *)info + ADDS, sizeof(unsigned long long));
    return 1;
}

/* `*missed`: 0, or how many objects had been loaded when the function was not there. */
static inline void *uu_optional_find(const char *name, unsigned long long *missed) {
    const int error = errno;
    unsigned long long loads = 0;
    void *found;
    dl_iterate_phdr(uu_optional_loads, &loads);
    if (loads && loads == __atomic_load_n(missed, __ATOMIC_RELAXED))
        return (void *)0;
    found = dlsym((void *)0, name); /* RTLD_DEFAULT */
    if (!found) {
        /* Opened by somebody with RTLD_LOCAL, perhaps: libuunwind.so.0 stays once it is loaded. */
        void *library = dlopen("libuunwind.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = dlsym(library, name);
            dlclose(library);
        }
    }
    if (!found)
        __atomic_store_n(missed, loads, __ATOMIC_RELAXED);
    errno = error;
    return found;
}

#define UU_OPTIONAL_FOUND(name, parameters, type)                                                                     \
    static void *cached;                                                                                              \
    static unsigned long long missed;                                                                                 \
    union {                                                                                                           \
        void *object;                                                                                                 \
        type(*function) parameters;                                                                                   \
    } found;                                                                                                          \
    found.object = __atomic_load_n(&cached, __ATOMIC_ACQUIRE);                                                        \
    if (!found.object) {                                                                                              \
        found.object = uu_optional_find("uu_" #name, &missed);                                                        \
        __atomic_store_n(&cached, found.object, __ATOMIC_RELEASE);                                                    \
    }

#define UU_OPTIONAL_FUNCTION(type, absent, name, parameters, arguments)                                               \
    __attribute__((always_inline)) static inline type uu_optional_##name parameters {                                \
        UU_OPTIONAL_FOUND(name, parameters, type)                                                                     \
        return found.object ? found.function arguments : (absent);                                                    \
    }

#define UU_OPTIONAL_ACTION(name, parameters, arguments)                                                               \
    __attribute__((always_inline)) static inline void uu_optional_##name parameters {                                \
        UU_OPTIONAL_FOUND(name, parameters, void)                                                                     \
        if (found.object)                                                                                             \
            found.function arguments;                                                                                 \
    }

UU_OPTIONAL_FUNCTION(uint32_t, 0, abi, (void), ())
UU_OPTIONAL_FUNCTION(size_t, 0, capture, (uint64_t *frames, size_t capacity, const void *ucontext, uint16_t *stop),
                     (frames, capacity, ucontext, stop))
UU_OPTIONAL_ACTION(capture_abandoned, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk, (struct uu_request *request), (request))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, thread_signal, (int signal), (signal))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk_thread, (uint32_t tid, struct uu_request *request, uint64_t timeout_ns),
                     (tid, request, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, walk_all,
                     (struct uu_request *request, struct uu_thread *threads, size_t capacity, uint64_t timeout_ns),
                     (request, threads, capacity, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, client_register,
                     (void (*deliver)(void *user, const struct uu_delivery *delivery), void *user), (deliver, user))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, client_unregister, (int client), (client))
UU_OPTIONAL_FUNCTION(uint64_t, 0, trigger, (int client), (client))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, trigger_cancel, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, cookie_is_pending, (uint64_t cookie), (cookie))
UU_OPTIONAL_FUNCTION(uint64_t, 0, triggers_lost, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, report_crashes, (int fd, uint32_t flags), (fd, flags))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, report_crashes_to, (const char *path, uint32_t flags), (path, flags))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, prepare_thread, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, describe, (const uint64_t *frame, struct uu_frame_info *info), (frame, info))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, symbolize, (const uint64_t *frames, size_t words, const struct uu_symbol **symbols),
                     (frames, words, symbols))
UU_OPTIONAL_ACTION(symbols_free, (const struct uu_symbol *symbols), (symbols))
UU_OPTIONAL_FUNCTION(uint32_t, 0, stack_id, (const uint64_t *frames, size_t words), (frames, words))
UU_OPTIONAL_FUNCTION(size_t, 0, stack_frames, (uint32_t id, uint64_t *frames, size_t capacity), (id, frames, capacity))
UU_OPTIONAL_FUNCTION(uint64_t, 0, stack_ids_lost, (void), ())
UU_OPTIONAL_FUNCTION(uint64_t, 0, names_lost, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, handle_faults, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, register_window, (const struct uu_window *window), (window))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unlink_window, (const void *text, uint64_t *ticket), (text, ticket))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, replace_windows,
                     (const void *const *old_texts, size_t old_count, const struct uu_window *windows, size_t new_count,
                      uint64_t *ticket),
                     (old_texts, old_count, windows, new_count, ticket))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, seal_window, (const void *text), (text))
UU_OPTIONAL_FUNCTION(uint64_t, 0, ticket, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, synchronize, (uint64_t ticket, uint64_t timeout_ns), (ticket, timeout_ns))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unregister_window, (const void *text), (text))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, setup, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, setup_with, (uint32_t flags), (flags))
UU_OPTIONAL_FUNCTION(uint32_t, 0, intern, (const char *function, const char *file, uint32_t first_line),
                     (function, file, first_line))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, publish_frames, (struct uu_frame_record *const *head), (head))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, mark_interpreter, (const void *text, size_t len), (text, len))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, unmark_interpreter, (const void *text), (text))
UU_OPTIONAL_FUNCTION(int, -ENOSYS, record_start, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, record_stop, (void), ())
UU_OPTIONAL_FUNCTION(int, -ENOSYS, label_set, (const char *key, const char *value), (key, value))
UU_OPTIONAL_FUNCTION(int, -ENOENT, plugin_call, (const char *plugin, uint32_t what, void *argument, size_t size),
                     (plugin, what, argument, size))

#ifdef __cplusplus
}
#endif
#endif
