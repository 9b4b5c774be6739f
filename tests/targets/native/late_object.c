/* Loads an object while it is recorded, and waits until the recorder has published the object's rule table.
 *
 * late_object OBJECT KEY OFFSET ENTRIES [works | LIBRARY]
 *
 * KEY: the object's; 0: any that was not there before. OFFSET, ENTRIES: where the table of rule tables is in the
 * recorder's memory, and its size. Without
 * "works" it runs nothing of the object, so that no sample meets it; with it, it calls work() of the object until then.
 * LIBRARY: its function open_it() opens the object, so that the loader searches where this library says; compiled with
 * -DLIBRARY, this file is one.
 * Prints "before" if the table was there before the object, else the time from before dlopen, in us. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY
void *open_it(const char *name) {
    void *volatile found = dlopen(name, RTLD_NOW);
    return found;
}
#else
struct entry {
    uint64_t key;
    uint32_t offset, len;
};

static const volatile struct entry *entries;
static uint64_t key, count, before;

static uint64_t tables(void) {
    uint64_t found = 0;
    for (uint64_t at = 0; at < count; at++) found += __atomic_load_n(&entries[at].key, __ATOMIC_ACQUIRE) != 0;
    return found;
}

static int is_there(void) {
    if (key == 0) return tables() > before;
    for (uint64_t probe = 0; probe < count; probe++) {
        uint64_t found = __atomic_load_n(&entries[(key + probe) % count].key, __ATOMIC_ACQUIRE);
        if (found == key || found == 0) return found == key;
    }
    return 0;
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int arguments, char **words) {
    int recorder, session, facts;
    char path[64];
    if (sscanf(getenv("UU_SESSION"), "%d:%d:%d", &recorder, &session, &facts) != 3) return 2;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", recorder, facts);
    int file = open(path, O_RDONLY);
    key = strtoull(words[2], 0, 10), count = strtoull(words[4], 0, 10);
    size_t offset = strtoull(words[3], 0, 10), size = count * sizeof(struct entry);
    entries = mmap(0, size, PROT_READ, MAP_SHARED, file, offset);
    if (entries == MAP_FAILED) return 3;
    int works = arguments > 5 && !strcmp(words[5], "works");
    void *library = arguments > 5 && !works ? dlopen(words[5], RTLD_NOW) : 0;
    void *(*open_it)(const char *) = library ? (void *(*)(const char *))dlsym(library, "open_it") : 0;
    before = tables();
    long long limit = now() + 60 * 1000000000LL;
    if (is_there()) return puts("before"), 0;
    long long begun = now();
    void *object = open_it ? open_it(words[1]) : dlopen(words[1], RTLD_NOW);
    unsigned (*work)(void) = object ? (unsigned (*)(void))dlsym(object, "work") : 0;
    if (!work) return 4;
    const struct timespec pause = {0, 200000};
    while (!is_there() && now() < limit) {
        if (works) work();
        else nanosleep(&pause, 0);
    }
    if (!is_there()) return puts("never"), 5;
    printf("%lld\n", (now() - begun) / 1000);
    return 0;
}
#endif
