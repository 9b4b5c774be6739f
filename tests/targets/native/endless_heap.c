/* An allocator for LD_PRELOAD whose large blocks are addresses alone, so that there may be many of them. */
#include <stddef.h>
#include <sys/mman.h>

enum { LARGE = 1 << 22, APART = 64 };
static const size_t ROOM = (size_t)1 << 30;

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

static char *first, *next;

void *malloc(size_t size) {
    if (size < LARGE)
        return __libc_malloc(size);
    if (!first) {
        void *room = mmap(0, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED)
            return 0;
        first = next = room;
    }
    return next += APART;
}

void free(void *block) {
    if (!first || (size_t)((char *)block - first) >= ROOM)
        __libc_free(block);
}
