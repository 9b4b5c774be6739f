/* map_malloc - an allocator in a shared object, which maps each block by itself and calls mmap by its name. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { FRONT = 4096 };

void *malloc(size_t size) {
    if (size > PTRDIFF_MAX - FRONT)
        return errno = ENOMEM, (void *)0;
    char *at = mmap(0, size + FRONT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    *(size_t *)at = size;
    return at + FRONT;
}

void free(void *block) {
    if (block)
        munmap((char *)block - FRONT, *(size_t *)((char *)block - FRONT) + FRONT);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? 0 : malloc(bytes);
}

void *realloc(void *block, size_t size) {
    void *other = malloc(size);
    if (other && block) {
        size_t old = *(size_t *)((char *)block - FRONT);
        memcpy(other, block, old < size ? old : size);
        free(block);
    }
    return other;
}

void *aligned_alloc(size_t alignment, size_t size) { return alignment <= FRONT ? malloc(size) : 0; }
void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    return (*block = aligned_alloc(alignment, size)) ? 0 : ENOMEM;
}
