/* Exceptions, one instruction at a time: at each, from where a function is about to throw until the catching function
   goes on, the stack is captured from the interrupted context. A complete one must end with the callers that a capture
   before the throw has found, from the thrower's on, or from those of the frame that the exception has come to; and it
   never goes back towards the thrower. Argument: what is thrown, and how.
   Prints the number of stacks, of complete ones, and of those that uu_walk() has otherwise.
   `loop MS` throws without steps; `wait` says so, and waits to be ended, a hundred instructions before the end of a
   throw. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" : : : "memory")
static const int MOST = 128, TRAP_FLAG = 0x100;

/* The callers of the function that throws, outermost last; how many of them have been left so far, and may be left: all
   inside of the one that catches. */
static uint64_t callers[MOST];
static size_t count_of_callers, left, most_left, callers_of_catching;
static volatile int stepping;
static bool steps = true, waits, has_landed;
static int throws_so_far;
static unsigned long stacks, complete, different, stacks_before, lands_after;
static std::map<std::string, unsigned long> ends;

static uint64_t address(uint64_t word) { return UU_FRAME_ADDRESS(word); }

static std::string place(uint64_t pc) {
    Dl_info info;
    char text[128];
    if (!dladdr(reinterpret_cast<void *>(pc), &info))
        return "?";
    snprintf(text, sizeof text, "%s+%#lx", info.dli_sname ? info.dli_sname : info.dli_fname,
             pc - reinterpret_cast<uintptr_t>(info.dli_sname ? info.dli_saddr : info.dli_fbase));
    return text;
}

[[noreturn]] static void wrong(const char *why, const uint64_t *frames, size_t count, unsigned stop) {
    printf("%s, stop %u:\n", why, stop);
    for (size_t i = 0; i < count; i++)
        printf("  %#lx %s\n", address(frames[i]), place(address(frames[i])).c_str());
    printf("expected the end of:\n");
    for (size_t i = 0; i < count_of_callers; i++)
        printf("  %#lx %s\n", callers[i], place(callers[i]).c_str());
    fflush(stdout);
    _exit(1);
}

static void check(const void *context) {
    uint64_t frames[MOST];
    uint16_t stop = 0;
    const size_t count = uu_capture(frames, MOST, context, &stop);
    stacks++;
    if (stop != UU_STOP_COMPLETE) {
        ends[place(address(frames[0])) + " .. " + place(address(frames[count - 1])) + " " + std::to_string(stop)]++;
        return;
    }
    complete++;
    /* The same ones from the outermost frame on. */
    size_t same = 0;
    while (same < count && same < count_of_callers && address(frames[count - 1 - same]) == callers[count_of_callers - 1 - same])
        same++;
    const size_t now = count_of_callers - same;
    if (now > most_left)
        wrong("callers are missing", frames, count, stop);
    if (now < left)
        wrong("the exception has gone back", frames, count, stop);
    left = now;
    if (left > 0 && !has_landed) {
        has_landed = true;
        lands_after = stacks - stacks_before;
    }
    uu_request request = {};
    static uint64_t walked[MOST];
    request.size = sizeof request, request.ucontext = context, request.frames = walked, request.capacity = MOST;
    if (stacks % 8 == 0 && uu_walk(&request) == 0)
        different += request.stop != stop || request.words != count || memcmp(walked, frames, count * sizeof *frames) != 0;
}

static void on_trap(int, siginfo_t *, void *context) {
    ucontext_t *at = static_cast<ucontext_t *>(context);
    if (stepping)
        check(at);
    /* The second throw is as long as the third one. */
    if (stepping && waits && throws_so_far == 3 && stacks - stacks_before == lands_after - 100) {
        puts("waiting");
        fflush(stdout);
        for (;;)
            pause();
    }
    if (!stepping)
        at->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(TRAP_FLAG);
}

/* Called by the function that is about to catch. */
NOINLINE static void may_catch() {
    uint64_t frames[MOST];
    callers_of_catching = uu_capture(frames, MOST, nullptr, nullptr) - 2;
}

/* Called by the function that is about to throw. */
NOINLINE static void begin() {
    if (!steps)
        return;
    uint64_t frames[MOST];
    const size_t count = uu_capture(frames, MOST, nullptr, nullptr);
    /* This function, and the one that throws. */
    count_of_callers = count - 2;
    for (size_t i = 0; i < count_of_callers; i++)
        callers[i] = address(frames[i + 2]);
    left = 0, most_left = count_of_callers - callers_of_catching;
    stacks_before = stacks, has_landed = false, throws_so_far++;
    stepping = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "memory", "cc");
}

NOINLINE static void end() { stepping = 0; KEEP; }

struct Cleanup {
    volatile int *at;
    NOINLINE ~Cleanup() { ++*at; KEEP; }
};

static volatile int cleaned;
static volatile int depth_of_room = 40;

struct Thrown { long words[4]; };

/* With and without own registers, cleanups, and a frame pointer. */
NOINLINE static long throws(long a) {
    begin();
    throw Thrown{{a, a + 1, a + 2, a + 3}};
}
NOINLINE static long with_registers(long (*inner)(long), long a) {
    long b = a * 3, c = a ^ 5, d = a + 7, e = a / 3, f = a * a;
    const long r = inner(a);
    return r ^ b ^ c ^ d ^ e ^ f;
}
NOINLINE static long with_cleanup(long (*inner)(long), long a) {
    Cleanup cleanup{&cleaned};
    long b = a * 3, c = a ^ 5;
    const long r = inner(a);
    return r ^ b ^ c;
}
NOINLINE static long with_room(long (*inner)(long), long a) {
    volatile char *room = static_cast<volatile char *>(__builtin_alloca(static_cast<size_t>(depth_of_room)));
    Cleanup cleanup{&cleaned};
    room[0] = 1;
    return inner(a) + room[0];
}
static long through_registers(long a) { return with_registers(throws, a); }
static long through_cleanup(long a) { return with_cleanup(throws, a); }

/* Catches what `inner` throws through `middle`. */
typedef long Middle(long (*)(long), long);
NOINLINE static long catches(Middle *middle, long (*inner)(long), long a) {
    may_catch();
    try {
        return middle(inner, a);
    } catch (Thrown &thrown) {
        end();
        return thrown.words[3];
    }
}
NOINLINE static long catches_in_place(long a) {
    may_catch();
    try {
        begin();
        throw Thrown{{a}};
    } catch (Thrown &thrown) {
        end();
        return thrown.words[0];
    }
}
NOINLINE static long throws_again(long (*inner)(long), long a) {
    try {
        return with_registers(inner, a);
    } catch (Thrown &) {
        throw;
    }
}
NOINLINE static long throws_quietly(long a) { throw Thrown{{a, a, a, a}}; }
NOINLINE static long throws_a_second_time(long (*inner)(long), long a) {
    try {
        return with_cleanup(inner, a);
    } catch (Thrown &) {
        begin();
        throw;
    }
}
NOINLINE static long deep(long (*inner)(long), long a) {
    static volatile int more;
    if (more < 90) {
        more = more + 1;
        const long r = deep(inner, a);
        KEEP;
        return r + 1;
    }
    more = 0;
    return with_registers(inner, a);
}

/* A thread that ends itself, or that is cancelled, is unwound to its beginning. */
NOINLINE static void exits() {
    begin();
    pthread_exit(nullptr);
}
NOINLINE static void is_cancelled() {
    begin();
    pthread_cancel(pthread_self());
    pthread_testcancel();
}
NOINLINE static void with_cleanups(void (*inner)()) {
    Cleanup cleanup{&cleaned};
    inner();
    KEEP;
}
NOINLINE static void has_ended(void *) { end(); }
static void *thread(void *inner) {
    may_catch();
    pthread_cleanup_push(has_ended, nullptr);
    with_cleanups(reinterpret_cast<void (*)()>(inner));
    pthread_cleanup_pop(0);
    return nullptr;
}

static void in_thread(void (*inner)()) {
    pthread_t id;
    if (pthread_create(&id, nullptr, thread, reinterpret_cast<void *>(inner)) || pthread_join(id, nullptr))
        _exit(3);
}

int main(int count, char **arguments) {
    struct sigaction action = {};
    action.sa_sigaction = on_trap, action.sa_flags = SA_SIGINFO;
    if (count < 2 || sigaction(SIGTRAP, &action, nullptr))
        return 2;
    const std::string what = arguments[1];
    if (what == "loop") {
        steps = false;
        timespec now, end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        end.tv_sec += atol(arguments[2]) / 1000;
        do {
            catches(with_room, through_cleanup, 5);
            catches(throws_again, through_registers, 5);
            catches(throws_a_second_time, throws_quietly, 5);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        } while (now.tv_sec < end.tv_sec);
        return 0;
    }
    waits = what == "wait";
    /* The first exception binds functions and looks for unwind information. */
    for (int i = 0; i < (waits ? 3 : 2); i++) {
        if (what == "direct" || waits)
            catches(with_registers, throws, i + 5);
        else if (what == "cleanup")
            catches(with_cleanup, through_registers, i + 5);
        else if (what == "cleanups")
            catches(with_room, through_cleanup, i + 5);
        else if (what == "in-place")
            catches_in_place(i + 5);
        else if (what == "again")
            catches(throws_again, through_cleanup, i + 5);
        else if (what == "rethrown")
            catches(throws_a_second_time, throws_quietly, i + 5);
        else if (what == "deep")
            catches(deep, throws, i + 5);
        else if (what == "exit")
            in_thread(exits);
        else if (what == "cancel")
            in_thread(is_cancelled);
        else
            return 2;
    }
    for (const auto &one : ends)
        printf("%lu end at %s\n", one.second, one.first.c_str());
    printf("%lu stacks, %lu complete, %lu different\n", stacks, complete, different);
    return 0;
}
