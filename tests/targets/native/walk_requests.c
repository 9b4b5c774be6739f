/* uu_walk() with every kind of request that it refuses, with callbacks that end it, walk or jump away, after fork, and in
   threads that come and go; the frames compared with uu_capture()'s. Prints "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
#define MOST 256

static struct uu_request request(void) {
    struct uu_request r;
    memset(&r, 0, sizeof r);
    r.size = sizeof r;
    return r;
}

static uint64_t frames[MOST], captured[MOST];

static void refused(void) {
    struct uu_request r = request();
    CHECK(uu_walk(0) == -EINVAL);
    r.size--;
    CHECK(uu_walk(&r) == -EINVAL);
    r = request(), r.flags = 1u << 31;
    CHECK(uu_walk(&r) == -EINVAL);
    r = request(), r.reserved = 1;
    CHECK(uu_walk(&r) == -EINVAL);
    r = request(), r.ucontext = (const void *)3;
    CHECK(uu_walk(&r) == -EINVAL);
    r = request(), r.frames = (uint64_t *)(void *)((char *)frames + 1), r.capacity = 4;
    CHECK(uu_walk(&r) == -EINVAL);
    /* A request that lies at no multiple of its alignment is not looked at. */
    static _Alignas(struct uu_request) char bytes[sizeof r + 8];
    struct uu_thread thread;
    for (size_t off = 1; off < 8; off++) {
        void *odd = bytes + off;
        r = request();
        memcpy(odd, &r, sizeof r);
        CHECK(uu_walk(odd) == -EINVAL && uu_walk_thread((uint32_t)getpid(), odd, 0) == -EINVAL);
        CHECK(uu_walk_all(odd, &thread, 1, 0) == -EINVAL && memcmp(odd, &r, sizeof r) == 0);
    }
    static _Alignas(struct uu_window) char described[sizeof(struct uu_window) + 8];
    struct uu_window window = {.size = sizeof window, .kind = UU_WINDOW_OPAQUE, .text = (void *)4096, .text_len = 1};
    memcpy(described + 1, &window, sizeof window);
    CHECK(uu_register_window((void *)(described + 1)) == -EINVAL);
    /* Nothing is wanted but the count. */
    r = request();
    CHECK(uu_walk(&r) == 0 && r.count > 2 && r.words == 0 && r.stop == UU_STOP_COMPLETE);
    r = request(), r.frames = frames, r.capacity = 0;
    CHECK(uu_walk(&r) == 0 && r.count == 0 && r.words == 0 && r.stop == UU_STOP_BUFFER_FULL);
    r = request(), r.skip = 1000, r.frames = frames, r.capacity = MOST;
    CHECK(uu_walk(&r) == 0 && r.count == 0 && r.stop == UU_STOP_COMPLETE);
}

/* The same frames as uu_capture()'s, but for the line of the call. */
static void as_captured(void) {
    struct uu_request r = request();
    r.frames = frames, r.capacity = MOST;
    uint16_t stop;
    size_t count = uu_capture(captured, MOST, 0, &stop);
    CHECK(uu_walk(&r) == 0);
    CHECK(r.words == count && r.stop == stop && r.count == count && r.doubt == (r.doubt & UU_DOUBT_SETUP_DUE));
    CHECK(memcmp(frames + 1, captured + 1, (count - 1) * 8) == 0);
}

static int left;
static int end_after(void *user, const uint64_t *words, size_t count) {
    CHECK(count == 1 && UU_FRAME_KIND(*words) == UU_FRAME_NATIVE);
    return ++*(int *)user == 2;
}
static int walk_inside(void *user, const uint64_t *words, size_t count) {
    (void)words, (void)count;
    struct uu_request r = request();
    CHECK(uu_walk(&r) == 0 && r.count == 0 && r.stop == UU_STOP_FAULT);
    struct uu_frame_info info = {.size = sizeof info};
    CHECK(uu_describe(words, &info) == 1 && info.file[0]);
    ++*(int *)user;
    return 0;
}
static sigjmp_buf out;
static int jump(void *user, const uint64_t *words, size_t count) {
    (void)user, (void)words, (void)count;
    left++;
    siglongjmp(out, 1);
}

static void callbacks(void) {
    int calls = left = 0;
    struct uu_request r = request();
    r.frame = end_after, r.user = &calls;
    CHECK(uu_walk(&r) == 0 && r.stop == UU_STOP_ENDED_BY_CALLBACK && r.count == 2 && calls == 2);
    r = request(), calls = 0, r.frame = walk_inside, r.user = &calls;
    CHECK(uu_walk(&r) == 0 && r.stop == UU_STOP_COMPLETE && (uint32_t)calls == r.count);
    for (int i = 0; i < 100; i++) {
        if (!sigsetjmp(out, 1)) {
            r = request(), r.frame = jump;
            uu_walk(&r);
            CHECK(0);
        }
        uu_capture_abandoned();
        as_captured();
    }
    CHECK(left == 100);
}

static void *thread(void *unused) {
    as_captured();
    return unused;
}

/* A handler at any instruction of uu_walk(): its own walk is refused or right, and the one that it interrupted is right. */
static volatile sig_atomic_t handled, inner;
static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    uint64_t own[MOST];
    struct uu_request r = request();
    r.ucontext = ucontext, r.frames = own, r.capacity = MOST;
    CHECK(uu_walk(&r) == 0);
    handled++;
    if (r.stop == UU_STOP_FAULT)
        CHECK(r.count == 0);
    else {
        CHECK(r.stop == UU_STOP_COMPLETE && r.count > 2);
        inner++;
    }
}

static void interrupted(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec fast = {{0, 50000}, {0, 50000}}, none = {{0, 0}, {0, 0}};
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer) && !timer_settime(timer, 0, &fast, 0));
    while (handled < 3000)
        as_captured();
    timer_settime(timer, 0, &none, 0);
    timer_delete(timer);
    CHECK(inner > 100);
}

int main(void) {
    for (int round = 0; round < 2; round++) {
        refused();
        as_captured();
        callbacks();
        for (int i = 0; i < 50; i++) {
            pthread_t t;
            CHECK(!pthread_create(&t, 0, thread, 0) && !pthread_join(t, 0));
        }
        pid_t child = fork();
        if (!child) {
            as_captured();
            callbacks();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        handled = inner = 0;
        interrupted();
        /* Once more with guarded reads. */
        CHECK(uu_handle_faults() == 0);
    }
    puts("ok");
    return 0;
}
