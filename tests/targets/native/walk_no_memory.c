/* Walks, ids of stacks and names where the kernel gives no memory: each call says so, and everything works once there is
   memory again, because nothing was used up meanwhile. Prints "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { fprintf(stderr, "line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
#define LONGEST 16384
static uint64_t words[LONGEST], frames[64];
static struct uu_frame_record *head;

static struct uu_request walk(int expected) {
    struct uu_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request, request.frames = frames, request.capacity = 64;
    CHECK(uu_walk(&request) == expected);
    return request;
}

/* The name of the interpreted frame in the last walk. */
static int named(const char *name, size_t count) {
    for (size_t at = 0; at < count;) {
        struct uu_frame_info info = {.size = sizeof info};
        int length = uu_describe(frames + at, &info);
        CHECK(length > 0);
        if (info.kind == UU_FRAME_SEMANTIC)
            return strcmp(info.function, name) == 0;
        at += (size_t)length;
    }
    CHECK(!"no interpreted frame");
    return 0;
}

__attribute__((noinline)) static struct uu_request interpreter(uint32_t name) {
    struct uu_frame_record record;
    uu_push_frame(&head, &record, &record, name, 5);
    struct uu_request request = walk(0);
    uu_pop_frame(&head, &record);
    return request;
}

/* The stack cannot grow either: what is called later finds it grown. */
__attribute__((noinline)) static void grow_the_stack(void) {
    volatile char room[256 * 1024];
    for (size_t at = 0; at < sizeof room; at += 1024)
        room[at] = 1;
}

int main(void) {
    grow_the_stack();
    uint32_t name = uu_intern("function", "a.lang", 1);
    CHECK(name && !uu_mark_interpreter((const void *)interpreter, 64) && !uu_publish_frames(&head));
    struct rlimit limit, low;
    CHECK(!getrlimit(RLIMIT_AS, &limit));
    low = limit, low.rlim_cur = 4096;

    CHECK(!setrlimit(RLIMIT_AS, &low));
    struct uu_request request = walk(-ENOMEM);
    CHECK(request.count == 0 && request.stop == UU_STOP_TOO_MANY_THREADS);
    /* Nine times what all stacks may take. */
    for (uint64_t n = 0; n < 36864; n++) {
        words[0] = n;
        CHECK(uu_stack_id(words, LONGEST) == 0 && uu_stack_ids_lost() == n + 1);
    }
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    request = walk(0);
    CHECK(request.count > 2 && request.stop == UU_STOP_COMPLETE);
    uint32_t first = uu_stack_id(words, LONGEST);
    CHECK(first == 1);
    for (uint64_t n = 0; n < 512; n++) {
        words[0] = n;
        CHECK(uu_stack_id(words, LONGEST) != 0);
    }

    CHECK(uu_names_lost() == 0 && !setrlimit(RLIMIT_AS, &low));
    request = interpreter(name);
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    CHECK(uu_names_lost() == 1 && named("", request.words));
    request = interpreter(name);
    CHECK(uu_names_lost() == 1 && named("function", request.words));
    puts("ok");
    return 0;
}
