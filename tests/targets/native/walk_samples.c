/* Preloaded into a target that sends itself SIGPROF to be sampled (python/cap.c): there is no recorder, and the handler
   calls uu_walk(). What it found is written when the program ends, as `uu report --format samples` writes it, to the file
   $UU_TEST_SAMPLES. Code objects have no address there.

   With $UU_TEST_STANDS, a number, it stands still in the handler at that many samples, at most: it writes "PID TID SAMPLE" to
   the pipe $UU_TEST_ASKS, and goes on when it has read a byte from $UU_TEST_ANSWERS.

   With $UU_TEST_STORM, a timer sends the signal 100 us after the last one was handled, and another one at each tick of CPU
   time: from the start or, with the value "altstack", once the program has an alternate signal stack. Ruby touches its
   whole stack before, and a handler has no room there then. The handler has the mask by which watch_calls.c recognises
   it. */
#define _GNU_SOURCE
#include "handler_mask.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <uu.h>

#define SAMPLES (1u << 18)
#define LONGEST 20000
#define WORDS (1ul << 27)
struct sample {
    long tid;
    uint64_t *frames;
    struct uu_request request;
};
static struct sample *samples;
static uint64_t *words;
static atomic_uint taken;
static atomic_ulong used;
static pid_t owner;
static char samples_path[4096]; /* PHP frees its environment before the end */

/* Where handlers that run at the same time write their stacks first. */
#define ROOMS 64
static struct room {
    atomic_flag busy;
    uint64_t words[LONGEST];
} rooms[ROOMS];

/* Called before each sample, in ordinary context: what was opened meanwhile. */
void before_sample(void) { uu_setup(); }

/* Programs that ignore the signal when no recorder runs are sampled all the same. */
sighandler_t signal(int number, sighandler_t new) {
    if (number == SIGPROF)
        return SIG_DFL;
    union {
        void *object;
        sighandler_t (*function)(int, sighandler_t);
    } real = {dlsym(RTLD_NEXT, "signal")};
    return real.function(number, new);
}

/* PHP takes the signal at its start, for its own limit of time. */
static int is_taken;

int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    union {
        void *object;
        int (*function)(int, const struct sigaction *, struct sigaction *);
    } real = {dlsym(RTLD_NEXT, "sigaction")};
    return real.function(number, is_taken && number == SIGPROF ? 0 : new, old);
}

static timer_t fast_timer;
static int is_storm;
static int calls_malloc; /* $UU_TEST_MALLOC: to show that it is noticed */

/* Once, so that the program goes on even where a walk takes longer than that. */
static void start_timer(long microseconds) {
    struct itimerspec next = {.it_value.tv_nsec = microseconds * 1000};
    if (is_storm && timer_settime(fast_timer, 0, &next, 0))
        abort();
}

static int asks, answers;
static atomic_int stands_left; /* 0: it does not stand still */
static atomic_flag stands = ATOMIC_FLAG_INIT;

/* The first samples, and the squares: a program may take very many. Where one thread stands, others go on. */
static void stand(unsigned index) {
    unsigned root = 0;
    while (root * root < index)
        root++;
    if (atomic_load(&stands_left) <= 0 || (index > 4 && root * root != index) || getpid() != owner)
        return;
    if (atomic_flag_test_and_set(&stands))
        return;
    int before = errno;
    if (atomic_fetch_sub(&stands_left, 1) > 0) {
        char line[64], byte;
        int len = snprintf(line, sizeof line, "%d %ld %u\n", owner, syscall(SYS_gettid), index);
        if (write(asks, line, len) != len)
            abort();
        while (read(answers, &byte, 1) != 1)
            if (errno != EINTR)
                abort();
    }
    errno = before;
    atomic_flag_clear(&stands);
}

static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    unsigned room = 0;
    while (room < ROOMS && atomic_flag_test_and_set(&rooms[room].busy))
        room++;
    if (room == ROOMS)
        return; /* a sample less */
    struct uu_request request = {
        .size = sizeof request, .ucontext = ucontext, .frames = rooms[room].words, .capacity = LONGEST};
    if (uu_walk(&request) != 0)
        abort();
    if (calls_malloc) {
        void *volatile block = malloc(1);
        free(block);
    }
    unsigned index = atomic_fetch_add(&taken, 1);
    unsigned long at = atomic_fetch_add(&used, request.words);
    if (index >= SAMPLES || at + request.words > WORDS)
        abort();
    memcpy(words + at, rooms[room].words, request.words * sizeof *words);
    samples[index] = (struct sample){syscall(SYS_gettid), words + at, request};
    stand(index);
    atomic_flag_clear(&rooms[room].busy);
    start_timer(100);
}

/* As reports do, so that each frame stays one line. */
static void write_text(FILE *out, const char *text) {
    for (; *text; text++)
        if (*text == '\n' || *text == '\r' || *text == '\t')
            fprintf(out, "\\%c", *text == '\n' ? 'n' : *text == '\r' ? 'r' : 't');
        else if ((unsigned char)*text < ' ' || *text == 127)
            fprintf(out, "\\u{%x}", *text);
        else
            putc(*text, out);
}

static void write_frame(FILE *out, const uint64_t *word, const struct uu_symbol *symbol) {
    struct uu_frame_info info = {.size = sizeof info};
    if (uu_describe(word, &info) < 0)
        abort();
    if (info.kind == UU_FRAME_OMITTED) {
        fprintf(out, "  omitted %u frames\n", info.omitted);
        return;
    }
    if (info.kind == UU_FRAME_SEMANTIC) {
        const char *label = strncmp(info.language, "python", 16) ? info.language : "py";
        fprintf(out, "  %.16s ", label);
        write_text(out, info.function);
        fputs(" (", out);
        write_text(out, info.file);
        fprintf(out, ":%u) code 0x0 pos %llu first %u\n", info.line, (unsigned long long)info.position, info.first_line);
        return;
    }
    uint64_t offset = symbol->start ? info.address - symbol->start : 0;
    if (info.kind == UU_FRAME_WINDOW)
        fprintf(out, "  jit %s+0x%llx (window gen %u)", *info.function ? info.function : "?", (unsigned long long)offset,
                UU_FRAME_GENERATION(word[1]));
    else
        fprintf(out, "  native %s+0x%llx (%s)", *symbol->function ? symbol->function : "??", (unsigned long long)offset,
                *symbol->object ? symbol->object : "?");
    fprintf(out, " 0x%llx%s%s%s\n", (unsigned long long)info.address, info.flags & UU_INFO_EXACT ? " exact" : "",
            info.flags & UU_INFO_BY_FRAME_POINTER ? " fp" : "", info.flags & UU_INFO_INTERPRETER ? " interp" : "");
}

/* Writes the frames of a sample. `symbol` is the first one of its first frame, or of a frame before. */
static const struct uu_symbol *write_sample(FILE *out, unsigned index, const struct uu_symbol *symbol) {
    const struct sample *sample = &samples[index];
    const struct uu_request *request = &sample->request;
    const char *flags = request->doubt == 0 ? "-" : request->doubt == UU_DOUBT_SETUP_DUE ? "facts-pending" : "desync";
    fprintf(out, "sample %u pid %d tid %ld comm - time %u weight 1 kind %s stop %u x flags %s\n", index, owner, sample->tid,
            index, is_storm ? "timer" : "explicit", request->stop, flags);
    const uint64_t *end = sample->frames + request->words;
    for (; symbol && words + symbol->frame < end; symbol = symbol->next)
        if (words + symbol->frame >= sample->frames && !(symbol->flags & UU_SYMBOL_INLINED))
            write_frame(out, words + symbol->frame, symbol);
    return symbol;
}

static void storm(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerval ticks = {{0, 100}, {0, 100}};
    if (timer_create(CLOCK_MONOTONIC, &event, &fast_timer) || setitimer(ITIMER_PROF, &ticks, 0))
        abort();
    is_storm = 1;
    start_timer(100);
}

static int is_storm_due; /* with an alternate stack */

int sigaltstack(const stack_t *new, stack_t *old) {
    int result = syscall(SYS_sigaltstack, new, old);
    if (new && is_storm_due) {
        is_storm_due = 0;
        storm();
    }
    return result;
}

static void *space(size_t size) {
    void *found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED || madvise(found, size, MADV_DONTDUMP)) /* a core file would have a GiB of zeros */
        abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    owner = getpid();
    snprintf(samples_path, sizeof samples_path, "%s", getenv("UU_TEST_SAMPLES"));
    unsetenv("LD_PRELOAD"); /* not for programs that this one starts */
    samples = space(SAMPLES * sizeof *samples);
    words = space(WORDS * sizeof *words);
    if (uu_setup() < 1 || sigaction(SIGPROF, &action, 0) != 0)
        abort();
    is_taken = 1;
    if (getenv("UU_TEST_HANDLE_FAULTS") && uu_handle_faults() != 0)
        abort();
    if (getenv("UU_TEST_STANDS")) {
        /* Where the program expects no descriptors. */
        asks = fcntl(open(getenv("UU_TEST_ASKS"), O_RDWR), F_DUPFD_CLOEXEC, 900);
        answers = fcntl(open(getenv("UU_TEST_ANSWERS"), O_RDWR), F_DUPFD_CLOEXEC, 900);
        if (asks < 0 || answers < 0)
            abort();
        stands_left = atoi(getenv("UU_TEST_STANDS"));
    }
    block_all();
    calls_malloc = getenv("UU_TEST_MALLOC") != 0;
    const char *when = getenv("UU_TEST_STORM");
    if (when && !strcmp(when, "altstack"))
        is_storm_due = 1;
    else if (when)
        storm();
}

__attribute__((destructor)) static void end(void) {
    if (getpid() != owner)
        return;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    is_taken = 0;
    sigaction(SIGPROF, &ignore, 0);
    FILE *out = fopen(samples_path, "w");
    const struct uu_symbol *symbols = 0, *next;
    if (!out || (used && uu_symbolize(words, used, &symbols) < 0))
        abort();
    next = symbols;
    for (unsigned index = 0, all = taken; index < all; index++) {
        /* Threads that took samples at the same time may have got their rooms in another order. */
        if (index && samples[index].frames < samples[index - 1].frames)
            next = symbols;
        next = write_sample(out, index, next);
    }
    uu_symbols_free(symbols);
    if (fclose(out) != 0)
        abort();
}
