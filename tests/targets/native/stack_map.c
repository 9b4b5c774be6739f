/* Ids of very many stacks of a program's own calls, given by four threads and by handlers of a signal, compared with
   what sorting the stacks says: equal ones have one id, different ones different ids. Then the table gets no more
   memory: what finds no room is counted, and the ids that were given stay. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <uu.h>

#define ENTRIES 400000u
#define WORDS (ENTRIES * 40ul)
#define THREADS 4
struct entry { uint64_t *frames; uint32_t len, id; };
static struct entry *entries;
static uint64_t *words;
static atomic_uint taken;
static atomic_ulong used;
static atomic_uint by_handler;

/* Gives a stack its id, and notes both. */
static int note(const uint64_t *frames, size_t len) {
    unsigned index = atomic_fetch_add(&taken, 1);
    unsigned long at = atomic_fetch_add(&used, len);
    if (index >= ENTRIES || at + len > WORDS)
        return 0;
    memcpy(words + at, frames, len * sizeof *frames);
    entries[index] = (struct entry){words + at, (uint32_t)len, uu_stack_id(frames, len)};
    return 1;
}

static void on_timer(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    uint64_t frames[64];
    by_handler += (unsigned)note(frames, uu_capture(frames, 64, ucontext, 0));
}

/* Functions that call each other as a random number says, twelve deep: of each four calls one is noted. */
typedef int function(uint64_t seed, int depth);
static function *const all[8];
static int next(uint64_t seed, int depth) {
    uint64_t frames[64];
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if ((seed >> 40 & 3) == 0 && !note(frames, uu_capture(frames, 64, 0, 0)))
        return 1;
    if ((seed >> 44 & 31) == 0)
        raise(SIGPROF); /* more often than the timer does */
    int full = 0;
    for (int i = 0; depth > 0 && i < 3 && !full; i++)
        full = all[(seed >> (30 + 3 * i)) & 7](seed + (uint64_t)i, depth - 1);
    return full;
}
#define FUNCTION(n) \
    __attribute__((noinline)) static int f##n(uint64_t seed, int depth) { \
        int result = next(seed + n, depth); \
        __asm__ volatile("" : "+r"(result)); \
        return result; \
    }
FUNCTION(0) FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5) FUNCTION(6) FUNCTION(7)
static function *const all[8] = {f0, f1, f2, f3, f4, f5, f6, f7};

static void *run(void *number) {
    for (uint64_t round = 0; !all[round & 7]((uint64_t)(size_t)number * 1000 + round, 12);)
        round++;
    return 0;
}

static int by_words(const void *a, const void *b) {
    const struct entry *one = a, *other = b;
    if (one->len != other->len)
        return one->len < other->len ? -1 : 1;
    return memcmp(one->frames, other->frames, one->len * sizeof *one->frames);
}

static void *space(size_t size) {
    void *found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? 0 : found;
}

static unsigned compare(void) {
    unsigned wrong = 0, different = 0;
    unsigned char *seen = space(1u << 24);
    qsort(entries, ENTRIES, sizeof *entries, by_words);
    for (unsigned i = 0; i < ENTRIES; i++) {
        const struct entry *entry = &entries[i];
        uint64_t back[64];
        if (i && by_words(entry, entry - 1) == 0) {
            wrong += entry->id != entry[-1].id;
            continue;
        }
        different++;
        wrong += entry->id == 0 || entry->id >= 1u << 24 || seen[entry->id]++;
        wrong += uu_stack_frames(entry->id, back, 64) != entry->len || memcmp(back, entry->frames, entry->len * 8) != 0;
    }
    printf("%u stacks, %u different, %u by handlers, %u wrong\n", ENTRIES, different, by_handler, wrong);
    return wrong + (different < 100000) + (by_handler < 1000) + (uu_stack_ids_lost() != 0);
}

/* Long stacks, until there is no memory for one more. */
static unsigned fill(void) {
    static uint64_t frames[16384];
    char line[256];
    unsigned long pages = 0, wrong = 0, none = 0, before = 0;
    FILE *maps = fopen("/proc/self/statm", "r");
    if (!maps || !fgets(line, sizeof line, maps) || sscanf(line, "%lu", &pages) != 1)
        return 1;
    fclose(maps);
    struct rlimit limit = {(pages << 12) + (32ul << 20), RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 1;
    for (uint64_t n = 0; n < 8192 && none < 10; n++) {
        for (size_t i = 0; i < 16384; i++)
            frames[i] = (uint64_t)UU_FRAME_NATIVE << 56 | (n << 20 | i);
        int got = uu_stack_id(frames, 16384) != 0;
        before += got && !none;
        none += !got;
    }
    wrong += none != 10 || before == 0 || uu_stack_ids_lost() != none;
    for (unsigned i = 0; i < ENTRIES; i += 7)
        wrong += uu_stack_id(entries[i].frames, entries[i].len) != entries[i].id;
    printf("%lu long stacks, then %lu without room, %llu counted; %lu wrong\n", before, none,
           (unsigned long long)uu_stack_ids_lost(), wrong);
    return wrong != 0;
}

int main(void) {
    entries = space(ENTRIES * sizeof *entries);
    words = space(WORDS * sizeof *words);
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, 0);
    struct itimerval timer = {{0, 500}, {0, 500}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &timer, 0);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, run, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    setitimer(ITIMER_PROF, &none, 0);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPROF, &action, 0);
    return compare() || fill();
}
