/* Describes the frames of its own stack and compares each with what the loader, dladdr and its own pages say. Prints
   "described N frames in M objects", or what differs. Then windows, and words that are no frames. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uu.h>

#define MOST 64
static uint64_t frames[MOST];
static size_t words;

static int fail(const char *what, const struct uu_frame_info *info) {
    printf("%s: address %#lx file %s +%#lx, kind %u\n", what, (long)info->address, info->file, (long)info->file_address,
           info->kind);
    return 1;
}

/* The loader's word on an address: bias, path, and the build-id and file offset from the program headers. */
struct oracle {
    uint64_t address, bias, offset;
    char path[1024];
    unsigned char id[32];
    unsigned id_len;
    int found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct oracle *o = data;
    int inside = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + ph->p_vaddr;
        if (ph->p_type == PT_LOAD && o->address >= start && o->address < start + ph->p_memsz) {
            inside = 1;
            o->offset = o->address - start + ph->p_offset;
        }
    }
    if (!inside)
        return 0;
    o->bias = info->dlpi_addr;
    if (info->dlpi_name[0])
        snprintf(o->path, sizeof o->path, "%s", info->dlpi_name);
    else if (!realpath("/proc/self/exe", o->path))
        abort();
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE)
            continue;
        const char *at = (const char *)(info->dlpi_addr + ph->p_vaddr), *end = at + ph->p_memsz;
        while (at < end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *name = at + sizeof *note, *desc = name + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                o->id_len = note->n_descsz;
                memcpy(o->id, desc, note->n_descsz);
            }
            at = desc + ((note->n_descsz + 3) & ~3u);
        }
    }
    o->found = 1;
    return 1;
}

static int compare(void) {
    uint64_t seen[MOST];
    unsigned objects = 0, count = 0;
    for (size_t at = 0; at < words;) {
        struct uu_frame_info info = {.size = sizeof info};
        memset(info.function, 'x', sizeof info.function);
        int taken = uu_describe(&frames[at], &info);
        if (taken != 1 || info.kind != UU_FRAME_NATIVE)
            return fail("no native frame", &info);
        uint64_t address = UU_FRAME_ADDRESS(frames[at]);
        int exact = (frames[at] & UU_FRAME_EXACT) != 0;
        struct oracle o = {.address = address - !exact};
        dl_iterate_phdr(look, &o);
        if (!o.found || info.address != address || info.file_address != address - o.bias ||
            info.file_offset != o.offset + !exact || strcmp(info.file, o.path) != 0)
            return fail("not what the loader says", &info);
        if (info.build_id_len != o.id_len || memcmp(info.build_id, o.id, o.id_len) != 0)
            return fail("another build-id", &info);
        if (info.function[0] || info.language[0] || (info.flags & UU_INFO_EXACT) != (exact ? UU_INFO_EXACT : 0))
            return fail("not empty", &info);
        unsigned i = 0;
        while (i < objects && seen[i] != o.bias)
            i++;
        if (i == objects)
            seen[objects++] = o.bias;
        count++;
        at += (size_t)taken;
    }
    printf("described %u frames in %u objects\n", count, objects);
    return 0;
}

static int by_qsort(const void *a, const void *b) {
    (void)a, (void)b;
    if (!words)
        words = uu_capture(frames, MOST, 0, 0);
    return 0;
}

static int result = 1;
static void handler(int signal, siginfo_t *info, void *ucontext) {
    (void)signal, (void)info;
    words = uu_capture(frames, MOST, ucontext, 0);
    result = compare();
}

static size_t name(void *user, uint64_t pc, char *buffer, size_t room, uint64_t *start) {
    (void)user, (void)pc, (void)room;
    memcpy(buffer, "jitted", 6);
    *start = 0;
    return 6;
}

int main(void) {
    int two[2] = {2, 1};
    qsort(two, 2, sizeof *two, by_qsort);
    if (compare())
        return 1;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    if (result)
        return 1;

    /* A window's frame has two words; one in no object has an address only. */
    (void)name;
    uint64_t window[2] = {(uint64_t)UU_FRAME_WINDOW << 56 | 0x1000, UINT64_C(7) << 32};
    struct uu_frame_info info = {.size = sizeof info};
    if (uu_describe(window, &info) != 2 || info.kind != UU_FRAME_WINDOW || info.address != 0x1000 || info.file[0])
        return fail("a window's frame", &info);
    uint64_t nowhere = (uint64_t)UU_FRAME_NATIVE << 56 | 0x1000;
    if (uu_describe(&nowhere, &info) != 1 || info.file[0] || info.build_id_len || info.file_address)
        return fail("a frame in no object", &info);
    uint64_t omitted = (uint64_t)UU_FRAME_OMITTED << 56 | 12345;
    if (uu_describe(&omitted, &info) != 1 || info.omitted != 12345 || info.address)
        return fail("frames that were left out", &info);
    /* What is no frame, or no place for the answer. */
    uint64_t none = 0;
    struct uu_frame_info other = {.size = 8};
    uint64_t room[2] = {0, 0};
    void *unaligned = (char *)room + 1;
    if (uu_describe(unaligned, &info) != -EINVAL || uu_describe(&nowhere, unaligned) != -EINVAL ||
        uu_stack_id(unaligned, 1) != 0 || uu_stack_frames(uu_stack_id(&nowhere, 1), unaligned, 1) != 0)
        return 1;
    if (uu_describe(&none, &info) != -EINVAL || uu_describe(0, &info) != -EINVAL || uu_describe(&nowhere, 0) != -EINVAL ||
        uu_describe(&nowhere, &other) != -EINVAL)
        return fail("not refused", &info);
    puts("ok");
    return 0;
}
