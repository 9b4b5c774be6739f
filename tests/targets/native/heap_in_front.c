/* An allocator for LD_PRELOAD, which knows its own blocks by their heads: what it did not make itself it does not free,
 * and ends the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

struct head {
    void *whole;
    size_t size;
    uint64_t mark[2];
};
static const uint64_t MARK = 0x6672756e742d6f66;

static void fail(void) {
    static const char said[] = "heap_in_front: a block that is not mine\n";
    (void)!write(2, said, sizeof said - 1);
    _exit(99);
}

static struct head *head_of(void *at) {
    struct head *head = (struct head *)at - 1;
    if (head->mark[0] != MARK || head->mark[1] != ~MARK)
        fail();
    return head;
}

void *memalign(size_t alignment, size_t size) {
    size_t room = alignment < sizeof(struct head) ? sizeof(struct head) : alignment;
    char *whole = __libc_memalign(room, size + room);
    if (!whole)
        return 0;
    struct head *head = (struct head *)(whole + room) - 1;
    *head = (struct head){whole, size, {MARK, ~MARK}};
    return head + 1;
}

void *malloc(size_t size) { return memalign(16, size); }
void *valloc(size_t size) { return memalign(4096, size); }
void *pvalloc(size_t size) { return memalign(4096, (size + 4095) & ~(size_t)4095); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

void free(void *at) {
    if (!at)
        return;
    struct head *head = head_of(at);
    head->mark[0] = 0;
    __libc_free(head->whole);
}

void *calloc(size_t count, size_t size) {
    void *at = memalign(16, count * size);
    return at ? memset(at, 0, count * size) : 0;
}

void *realloc(void *old, size_t size) {
    void *at = memalign(16, size);
    if (old && at) {
        size_t before = head_of(old)->size;
        memcpy(at, old, before < size ? before : size), free(old);
    }
    return at;
}

int posix_memalign(void **at, size_t alignment, size_t size) {
    *at = memalign(alignment, size);
    return *at ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *at) { return at ? head_of(at)->size : 0; }
