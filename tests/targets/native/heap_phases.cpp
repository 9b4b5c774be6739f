/* heap_phases - allocates and frees known sizes whenever a line says so, and counts it itself: what uu records of the
 * functions `phase_...` after it was put in must be the same.
 *
 *     heap_phases LIBRARY [FILE]
 *
 * Lines come from the file, if there is one.
 *
 * "phase": C's functions, C++'s new, four threads, and a library that is loaded just before; what was allocated before
 * is freed and changes its size. Prints "total NUMBER BYTES" and "live NUMBER BYTES", all of them since the beginning.
 * "hidden": frees by the address that `free` had at the start. "too much":
 * asks for more than there is, and prints how often that was thrown. "leave": forgets what the phases keep. "end": ends. */
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <new>
#include <pthread.h>

enum { OLD = 400, ROUNDS = 500, THREADS = 4 };

static std::atomic<unsigned long> total, total_bytes, live, live_bytes;
static void *old_ones[OLD];
static void (*volatile first_free)(void *) = free;
static void *(*library_phase)(size_t);
static void *volatile kept;

static void made(size_t size) { total++, total_bytes += size, live++, live_bytes += size; }
static void gone(size_t size) { live--, live_bytes -= size; }

extern "C" {
__attribute__((noinline)) static void phase_c() {
    for (size_t i = 1; i <= ROUNDS; i++) {
        void *a = malloc(i), *b = calloc(i, 3), *c = 0, *d = memalign(64, i), *e = aligned_alloc(32, i * 32);
        if (posix_memalign(&c, 128, i + 7))
            abort();
        kept = b, kept = c, kept = d, kept = e; /* what is not used is left out by the compiler */
        made(i), made(3 * i), made(i + 7), made(i), made(i * 32);
        kept = a, a = realloc(a, i + 5000), kept = a, gone(i), made(i + 5000);
        b = reallocarray(b, i, 2), gone(3 * i), made(2 * i);
        free(b), gone(2 * i), free(c), gone(i + 7), free(e), gone(i * 32);
        if (i & 1)
            free(a), gone(i + 5000);
        free(d), gone(i);
        char *s = strdup("a string"); /* the C library's own call */
        kept = s, made(9), free(s), gone(9);
    }
}

__attribute__((noinline)) static void phase_cpp() {
    for (size_t i = 1; i <= ROUNDS; i++) {
        char *a = new char[i], *b = new char[10 * i];
        struct alignas(64) wide { char all[192]; } *c = new wide;
        kept = a, kept = b, kept = c;
        made(i), made(10 * i), made(sizeof(wide));
        delete[] a, gone(i);
        if (i % 3)
            delete[] b, gone(10 * i);
        delete c, gone(sizeof(wide));
    }
}

__attribute__((noinline)) static void *phase_thread(void *) {
    void *own[64] = {};
    for (size_t i = 0; i < 20 * ROUNDS; i++) {
        size_t at = i % 64;
        if (own[at])
            gone(*(size_t *)own[at]), free(own[at]);
        size_t size = 8 + i % 1000;
        own[at] = malloc(size), *(size_t *)own[at] = size, made(size);
    }
    for (void *one : own)
        gone(*(size_t *)one), free(one);
    return 0;
}

/* What was there before uu was put in: its frees are nobody's, and what realloc makes of it is new. */
__attribute__((noinline)) static void phase_old() {
    for (int i = 0; i < OLD; i++)
        if (i % 2)
            free(old_ones[i]), old_ones[i] = 0;
        else
            old_ones[i] = realloc(old_ones[i], 3000), made(3000);
}

__attribute__((noinline)) static void phase_hidden() {
    for (int i = 0; i < 1000; i++) {
        void *one = malloc(777);
        kept = one;
        first_free(one);
        kept = malloc(777);
        free(kept);
    }
}
}

static int too_much() {
    int thrown = 0;
    volatile size_t size = (size_t)1 << 62;
    try {
        kept = new char[size];
    } catch (const std::bad_alloc &) {
        thrown++;
    }
    try {
        kept = ::operator new(size, std::align_val_t(64));
    } catch (const std::bad_alloc &) {
        thrown++;
    }
    return thrown;
}

static void phase(const char *path) {
    for (void *&one : old_ones) {
        if (!one)
            one = malloc(1000);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        abort();
    library_phase = (void *(*)(size_t))dlsym(library, "phase_library");
    phase_c(), phase_cpp(), phase_old();
    for (size_t i = 1; i <= ROUNDS; i++) {
        made(2 * i);
        void *one = library_phase(2 * i);
        if (i % 5)
            free(one), gone(2 * i);
    }
    pthread_t threads[THREADS];
    for (pthread_t &thread : threads)
        if (pthread_create(&thread, 0, phase_thread, 0))
            abort();
    for (pthread_t thread : threads)
        pthread_join(thread, 0);
    dlclose(library);
}

int main(int count, char **arguments) {
    if (count > 2 && !freopen(arguments[2], "r", stdin))
        abort();
    for (void *&one : old_ones)
        one = malloc(1000);
    char line[64];
    setvbuf(stdout, 0, _IOLBF, 4096);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "phase\n")) {
            phase(arguments[1]);
            printf("total %lu %lu\nlive %lu %lu\n", total.load(), total_bytes.load(), live.load(), live_bytes.load());
        } else if (!strcmp(line, "too much\n")) {
            printf("thrown %d\n", too_much());
        } else if (!strcmp(line, "hidden\n")) {
            phase_hidden();
            puts("done");
        } else if (!strcmp(line, "leave\n")) {
            total = total_bytes = live = live_bytes = 0;
            puts("done");
        }
    }
    return 0;
}
