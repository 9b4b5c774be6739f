/* Preloaded, after libuunwind-compat.so, into a target that sends itself SIGPROF to be sampled (python/cap.c): the handler
   takes a stack by libunwind's cursors, and writes a line to the file $UU_TEST_SAMPLES, of fields that end with 0x1f:
   the thread's id, the last result of unw_step(), and each step from the interrupted one on: "L" before what
   unw_get_proc_name() says of a frame of a language, "N" before that of a machine frame.

   What each interface says of the same stack is compared here; the first difference ends the program. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <libunwind.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FRAMES = 9000, SHORT = 200, NAME = 4096, KIND = 56, SEMANTIC = 2, OMITTED = 4 };
static char text[1 << 24];
static size_t used;
static int samples;
static void *machine[FRAMES];
static atomic_flag is_busy = ATOMIC_FLAG_INIT; /* a thread writes to these */

static void check(int is_so, const char *what) {
    if (!is_so) {
        dprintf(2, "cursor_samples: %s\n", what);
        abort();
    }
}

static void put(const char *kind, const char *name) {
    size_t room = sizeof text - used;
    int len = snprintf(text + used, room, "%s%s\x1f", kind, name);
    check(len >= 0 && (size_t)len < room, "too many frames");
    for (char *place = text + used; *place; place++)
        if (*place == '\n')
            *place = ' ';
    used += len;
}

static int is_of_language(unw_word_t ip) { return ip >> KIND == SEMANTIC || ip >> KIND == OMITTED; }

static void put_language(unw_cursor_t *cursor) {
    char name[NAME], some[NAME];
    unw_word_t offset = 1, sp;
    unw_proc_info_t info;
    check(unw_get_proc_name(cursor, name, sizeof name, &offset) == 0 && offset == 0, "a frame of a language has no name");
    check(unw_get_reg(cursor, UNW_REG_SP, &sp) == -UNW_EBADREG, "a frame of a language has a stack pointer");
    check(unw_get_proc_info(cursor, &info) == -UNW_ENOINFO, "a frame of a language has unwind information");
    check(unw_is_signal_frame(cursor) == 0, "a frame of a language is a signal's");
    size_t len = strlen(name);
    check(unw_get_proc_name(cursor, some, len + 1, 0) == 0 && !strcmp(some, name), "a buffer that is just large enough");
    check(unw_get_proc_name(cursor, some, len, 0) == -UNW_ENOMEM && strlen(some) < len && !strncmp(some, name, strlen(some)),
          "a buffer that is too small");
    check(unw_get_proc_name(cursor, some, 0, 0) == -UNW_ENOMEM, "no buffer");
    put("L", name);
}

/* Whether the machine frames that were found are the last ones of `machine`, of which there are `count`. `cut`: after this
   number of them, others were left out; -1: none were. */
static int are_the_last(void **found, int frames, int count, int cut) {
    if (cut < 0)
        return frames <= count && !memcmp(found, machine + count - frames, frames * sizeof *found);
    int begin = 0, outer = frames - cut;
    while (begin < count && machine[begin] != found[0])
        begin++;
    return begin + frames <= count && !memcmp(found, machine + begin, cut * sizeof *found) &&
           !memcmp(found + cut, machine + count - outer, outer * sizeof *found);
}

/* The steps of a cursor. Its machine frames must be the last ones of `machine`; `signals` of them were interrupted. */
static void walk(unw_cursor_t *cursor, int count, int signals, int is_written) {
    static void *found[FRAMES];
    int frames = 0, cut = -1, result;
    unw_word_t ip, sp, last = 0;
    do {
        unw_cursor_t copy = *cursor;
        check(unw_get_reg(&copy, UNW_REG_IP, &ip) == 0, "a frame has no address");
        if (is_of_language(ip)) {
            if (ip >> KIND == OMITTED)
                cut = frames;
            if (is_written)
                put_language(&copy);
        } else {
            check(frames < FRAMES, "too many frames");
            found[frames++] = (void *)ip;
            if (is_written) {
                char name[NAME];
                put("N", unw_get_proc_name(&copy, name, sizeof name, &sp) == 0 ? name : "?");
            }
            if (cut >= 0) {
                check(unw_get_reg(&copy, UNW_REG_SP, &sp) == -UNW_EBADREG, "a register after frames that were left out");
            } else if (frames < SHORT) {
                check(unw_get_reg(&copy, UNW_REG_SP, &sp) == 0 && sp > last, "stack pointers do not grow");
                last = sp;
                signals -= unw_is_signal_frame(&copy);
            }
        }
        memset(cursor, 0x55, sizeof *cursor);
        *cursor = copy;
        result = unw_step(cursor);
    } while (result > 0);
    check(signals == 0, "another number of signals");
    check(are_the_last(found, frames, count, cut), "other machine frames than those of unw_backtrace()");
    if (is_written) {
        char end[32];
        snprintf(end, sizeof end, "%d", result);
        put("", end);
    }
}

/* Called before each sample, in ordinary context: the set-up of what was opened meanwhile is awaited. The first walk that
   meets it has woken the thread that does it. */
void before_sample(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_word_t ip;
    for (int is_due = getenv("UU_LANGUAGE_FRAMES") != 0; is_due;) {
        is_due = 0;
        unw_getcontext(&context);
        check(unw_init_local(&cursor, &context) == 0, "unw_init_local");
        while (unw_step(&cursor) > 0) {
            char name[NAME] = "";
            if (unw_get_reg(&cursor, UNW_REG_IP, &ip) == 0 && ip >> KIND == OMITTED)
                unw_get_proc_name(&cursor, name, sizeof name, 0);
            is_due |= strstr(name, "uu_setup()") != 0;
        }
        usleep(1000 * is_due);
    }
}

static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    int before = errno;
    /* The signal is blocked here, so whoever holds it goes on. */
    while (atomic_flag_test_and_set(&is_busy))
        sched_yield();
    int count = unw_backtrace(machine, FRAMES);
    unw_context_t context;
    unw_cursor_t cursor;
    char tid[32];
    unw_getcontext(&context);
    check(unw_init_local(&cursor, &context) == 0, "unw_init_local");
    used = 0;
    unw_word_t ip;
    check(unw_get_reg(&cursor, UNW_REG_IP, &ip) == 0, "unw_get_reg");
    /* Both begin in this function, at another call. */
    machine[0] = (void *)ip;
    walk(&cursor, count, 1, 0);
    snprintf(tid, sizeof tid, "%ld", syscall(SYS_gettid));
    put("", tid);
    check(unw_init_local2(&cursor, ucontext, UNW_INIT_SIGNAL_FRAME) == 0, "unw_init_local2");
    walk(&cursor, count, 0, 1);
    text[used++] = '\n';
    check(write(samples, text, used) == (ssize_t)used, "write");
    atomic_flag_clear(&is_busy);
    errno = before;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    samples = fcntl(open(getenv("UU_TEST_SAMPLES"), O_WRONLY | O_APPEND | O_CREAT, 0600), F_DUPFD_CLOEXEC, 900);
    check(samples >= 0 && sigaction(SIGPROF, &action, 0) == 0, "the handler cannot be installed");
}
