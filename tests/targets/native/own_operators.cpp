/* Operators new and delete of a library's own, which keep their blocks in a pool: only its chunks come from malloc.
 * With -DFEW, the others are the C++ runtime's, which call these two. */
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

enum : size_t { HEAD = 64, CHUNK = 1 << 20, MOST = 1 << 16 };
struct Block {
    size_t size; /* with the head */
    Block *next;
    void *mark;
};
std::atomic_flag taken = ATOMIC_FLAG_INIT;
Block *freed[MOST / 64 + 1];
char *at, *end;
unsigned long number;

struct Held {
    Held() {
        while (taken.test_and_set(std::memory_order_acquire))
            ;
    }
    ~Held() { taken.clear(std::memory_order_release); }
};

/* All blocks are aligned to 64 bytes. */
void *take(size_t size) {
    if (size > MOST - HEAD)
        return 0;
    size = (size + HEAD + 63) & ~(size_t)63;
    Held held;
    number++;
    Block *block = freed[size / 64];
    if (block) {
        freed[size / 64] = block->next;
    } else {
        if ((size_t)(end - at) < size) {
            void *chunk = malloc(CHUNK + 64);
            if (!chunk)
                return 0;
            at = (char *)(((size_t)chunk + 63) & ~(size_t)63), end = at + CHUNK;
        }
        block = (Block *)at, at += size;
    }
    block->size = size, block->mark = &taken;
    return (char *)block + HEAD;
}

void *must_take(size_t size) {
    void *block = take(size);
    if (!block)
        throw std::bad_alloc();
    return block;
}

void give(void *there) {
    if (!there)
        return;
    Block *block = (Block *)((char *)there - HEAD);
    if (block->mark != &taken)
        abort(); /* another library's */
    Held held;
    block->mark = 0, block->next = freed[block->size / 64], freed[block->size / 64] = block;
}

}

/* How many blocks were taken. */
extern "C" unsigned long own_number() { return number; }
/* What the library's own code does with its operators, by the names that others may define, too. */
extern "C" void *volatile own_kept = 0;
extern "C" void own_use() {
    own_kept = ::operator new(100);
    give(own_kept);
    own_kept = must_take(100);
    ::operator delete(own_kept);
}

void *operator new(size_t size) { return must_take(size); }
void operator delete(void *block) noexcept { give(block); }
#ifndef FEW
void *operator new[](size_t size) { return must_take(size); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return take(size); }
void *operator new[](size_t size, const std::nothrow_t &) noexcept { return take(size); }
void *operator new(size_t size, std::align_val_t) { return must_take(size); }
void *operator new[](size_t size, std::align_val_t) { return must_take(size); }
void *operator new(size_t size, std::align_val_t, const std::nothrow_t &) noexcept { return take(size); }
void *operator new[](size_t size, std::align_val_t, const std::nothrow_t &) noexcept { return take(size); }
void operator delete[](void *block) noexcept { give(block); }
void operator delete(void *block, size_t) noexcept { give(block); }
void operator delete[](void *block, size_t) noexcept { give(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { give(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { give(block); }
void operator delete(void *block, std::align_val_t) noexcept { give(block); }
void operator delete[](void *block, std::align_val_t) noexcept { give(block); }
void operator delete(void *block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete[](void *block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { give(block); }
void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { give(block); }
#endif
