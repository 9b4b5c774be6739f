/* uu_record.h - for programs that say something of themselves to the `uu record` that records them.
 *
 * A part of uu.h, by itself.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_RECORD_H
#define UU_RECORD_H

#ifdef __cplusplus
extern "C" {
#endif

/* All of these are thread-safe and async-signal-safe, and make no system call but for uu_label_set() in a recording of
 * waiting time (two of rt_sigprocmask(2)). Where nothing records the process, they do nothing and return -ENOTCONN: so
 * they may stay in a program that is shipped. A sampler that `uu record -p` has put into the process hears of them
 * where this library was loaded before; then uu_label_set() calls gettid(2), and what was set before must be set
 * again. */

/* Pauses the recording of the calling process: nothing of it is sampled until it is resumed, and the summary says how
 * much CPU time has passed meanwhile. The child of a fork goes on as its parent was; a program that is executed begins
 * as `uu record --start-paused`, `uu pause` and `uu resume` have it. Calls do not nest: the last of all these decides.
 *
 * 0, or -ENOTCONN; -ENOTSUP: perf events time the samples (`uu record --kernel`, or a rate above 1000). */
int uu_record_stop(void);

/* Resumes it: begins, where the recording was started with `uu record --start-paused`. Errors as above. */
int uu_record_start(void);

/* Labels of a thread: at most this number, and the bytes of all keys and values, with 2 for each, may not be more than
 * UU_LABEL_BYTES. */
#define UU_LABELS 16
#define UU_LABEL_BYTES 1000
/* The longest key and the longest value, in bytes without the NUL. */
#define UU_LABEL_KEY 63
#define UU_LABEL_VALUE 255

/* From now on, each sample of the calling thread has this label, in place of an earlier one with the same key; a value
 * that is NULL takes it away. For what the thread works on: a request, a user, a stage. Both are UTF-8, and are copied.
 * Threads do not inherit labels; the child of a fork does. Needs 1.5 KiB of stack.
 *
 * 0; -ENOTCONN: nothing records the process, or the thread; -EINVAL: `key` is NULL or empty; -ENAMETOOLONG: one of both
 * is too long; -EILSEQ: one of both is not UTF-8; -ENOSPC: it is one label too many, or too much text; -EBUSY: a
 * handler has interrupted this very function on its thread. After an error the labels are as they were. A handler must
 * not leave a call that it has interrupted, by siglongjmp(3). */
int uu_label_set(const char *key, const char *value);

#ifdef __cplusplus
}
#endif

#endif /* UU_RECORD_H */
