/* Linked with a target that sends itself SIGPROF to be sampled (python/cap.c): there is no recorder, and the handler calls
   uu_walk(). What it found is written when the program ends, as `uu report --format samples` writes it, to the file
   $UU_TEST_SAMPLES. Code objects have no address there. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uu.h>

#define SAMPLES 4096
#define WORDS 20000
struct sample {
    long tid;
    struct uu_request request;
    uint64_t words[WORDS];
};
static struct sample *samples;
static atomic_uint taken;
static pid_t owner;

/* Called before each sample, in ordinary context: what was opened meanwhile. */
void before_sample(void) { uu_setup(); }

static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    unsigned index = atomic_fetch_add(&taken, 1);
    if (index >= SAMPLES)
        return;
    struct sample *sample = &samples[index];
    sample->tid = syscall(SYS_gettid);
    sample->request.size = sizeof sample->request;
    sample->request.ucontext = ucontext;
    sample->request.frames = sample->words;
    sample->request.capacity = WORDS;
    if (uu_walk(&sample->request) != 0)
        abort();
}

static void write_frame(FILE *out, const uint64_t *word, const struct uu_symbol *symbol) {
    struct uu_frame_info info = {.size = sizeof info};
    if (uu_describe(word, &info) < 0)
        abort();
    if (info.kind == UU_FRAME_OMITTED) {
        fprintf(out, "  omitted %u frames\n", info.omitted);
    } else if (info.kind == UU_FRAME_SEMANTIC) {
        const char *label = strncmp(info.language, "python", 16) ? info.language : "py";
        fprintf(out, "  %.16s %s (%s:%u) code 0x0 pos %llu first %u\n", label, info.function, info.file, info.line,
                (unsigned long long)info.position, info.first_line);
    } else {
        const char *name = symbol->function[0] ? symbol->function : "??", *object = symbol->object[0] ? symbol->object : "?";
        uint64_t offset = symbol->start ? info.address - symbol->start : 0;
        fprintf(out, "  native %s+0x%llx (%s) 0x%llx%s%s%s\n", name, (unsigned long long)offset, object,
                (unsigned long long)info.address, info.flags & UU_INFO_EXACT ? " exact" : "",
                info.flags & UU_INFO_BY_FRAME_POINTER ? " fp" : "", info.flags & UU_INFO_INTERPRETER ? " interp" : "");
    }
}

static void write_sample(FILE *out, unsigned index) {
    const struct sample *sample = &samples[index];
    const struct uu_request *request = &sample->request;
    const char *flags = request->doubt == 0 ? "-" : request->doubt == UU_DOUBT_SETUP_DUE ? "facts-pending" : "desync";
    fprintf(out, "sample %u pid %d tid %ld comm - time %u weight 1 kind explicit stop %u x flags %s\n", index, owner,
            sample->tid, index, request->stop, flags);
    const struct uu_symbol *symbols, *symbol;
    if (uu_symbolize(sample->words, request->words, &symbols) < 0)
        abort();
    for (symbol = symbols; symbol; symbol = symbol->next)
        if (!(symbol->flags & UU_SYMBOL_INLINED))
            write_frame(out, &sample->words[symbol->frame], symbol);
    uu_symbols_free(symbols);
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    owner = getpid();
    samples = mmap(0, SAMPLES * sizeof *samples, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (samples == MAP_FAILED || uu_setup() < 1 || sigaction(SIGPROF, &action, 0) != 0)
        abort();
    if (getenv("UU_TEST_HANDLE_FAULTS") && uu_handle_faults() != 0)
        abort();
}

__attribute__((destructor)) static void end(void) {
    FILE *out = getpid() == owner ? fopen(getenv("UU_TEST_SAMPLES"), "w") : 0;
    if (!out)
        return;
    unsigned all = taken;
    if (all > SAMPLES)
        abort();
    for (unsigned index = 0; index < all; index++)
        write_sample(out, index);
    fclose(out);
}
