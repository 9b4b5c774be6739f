/* A language of many. Built with -DNUMBER=n as its plugin (-DPLUGIN), which emits one frame for each frame of the
   library that it claims; as that library (-DLIBRARY); and without either as a program that passes through all of
   -DCOUNT libraries, and there asks for a sample and, with an argument, waits for a line. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define JOINED_OF(a, b) a##b
#define JOINED(a, b) JOINED_OF(a, b)
#define NAME "tongue" TEXT(NUMBER)

#if defined PLUGIN
#include <uu_plugin.h>

static uint32_t overlay(struct uu_view *view) {
    static const char name[] = NAME " frame", file[] = NAME ".lang";
    /* Its scratch memory is its own: another's call between two of its own leaves it as it was. */
    uint32_t *calls = (uint32_t *)view->scratch;
    uint32_t id = view->host->find_name(view->walk, (uint64_t)(uintptr_t)name, 1);
    if (!id) {
        struct uu_description d = {.code = (uint64_t)(uintptr_t)name, .fingerprint = 1,
                                   .name = {(uint64_t)(uintptr_t)name, sizeof name - 1, 1, 3},
                                   .file = {(uint64_t)(uintptr_t)file, sizeof file - 1, 1, 3}, .first_line = 1};
        id = view->host->describe(view->walk, &d);
    }
    view->host->emit(view->walk, id, NUMBER * 100 + ++*calls);
    return UU_OVERLAY_INTERPRETER;
}

static ptrdiff_t analyse(const struct uu_object_file *object, uint8_t *facts, size_t capacity) {
    uint64_t address, size;
    if (!object->symbol(object->host, NAME, &address, &size) || capacity == 0)
        return 0;
    facts[0] = 1;
    return 1;
}

static const struct uu_plugin table = {.size = sizeof table, .abi = UU_PLUGIN_ABI, .name = NAME, .scratch_bytes = 4,
                                       .overlay = overlay, .analyse = analyse};

const struct uu_plugin *uu_plugin(uint32_t host_abi) { return host_abi >= UU_PLUGIN_ABI ? &table : 0; }
#else
typedef int step(const void *const *rest);

#if defined LIBRARY
int JOINED(tongue, NUMBER)(const void *const *rest) {
    volatile int result = ((step *)rest[0])(rest + 1);
    return result + 1;
}
#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

static int waits;

static int ask(const void *const *rest) {
    raise(SIGPROF);
    if (waits) {
        puts("here");
        fflush(stdout);
        getchar();
    }
    return rest[0] != 0;
}

int main(int argc, char **argv) {
    /* Twice each, so that each has a state of its own between two calls. */
    const void *steps[2 * COUNT + 2] = {0};
    (void)argv;
    waits = argc > 1;
    signal(SIGPROF, SIG_IGN);
    for (int n = 0; n < 2 * COUNT; n++) {
        char name[16];
        snprintf(name, sizeof name, "tongue%d", n % COUNT + 1);
        steps[n] = dlsym(RTLD_DEFAULT, name);
    }
    steps[2 * COUNT] = (const void *)ask;
    for (int round = 0; round < (waits ? 1 : 4); round++)
        ((step *)steps[0])(steps + 1);
    return 0;
}
#endif
#endif
