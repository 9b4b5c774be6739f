/* Code without unwind data, for programs that run it as JITs do: where it comes from, how it calls back for an explicit
 * sample or a dump, and how to wait until the recorder has published rules for it (profiler/ring/src/code_rules.rs has
 * their layout). */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STAY __asm__ volatile("" ::: "memory")
#define PLACE_BYTES (1 << 20)

__attribute__((noinline)) static void call_back(void) {
    long pid = getpid(), tid = syscall(SYS_gettid), result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_tgkill), "D"(pid), "S"(tid), "d"(SIGPROF) : "rcx", "r11", "memory");
    STAY;
}

/* ---- what the recorder has published ---- */
static const uint64_t *published(void) {
    static const uint64_t *rules;
    FILE *maps = rules ? NULL : fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:uu-facts"))
            rules = (const uint64_t *)(strtoul(line, NULL, 16) + (4 << 20));
    if (maps)
        fclose(maps);
    if (!rules)
        abort();
    return rules;
}

static int has_rules(uint64_t address) {
    const volatile uint64_t *words = published();
    uint64_t generation = words[0], index = generation % 2 ? 8 + 8 + 16384 * 3 : 8;
    if (generation == 0)
        return 0;
    for (uint64_t at = 0; at < words[index]; at++) {
        const volatile uint64_t *entry = words + index + 1 + 3 * at;
        if (entry[0] <= address && address < entry[1]) {
            const volatile uint64_t *block = words + entry[2];
            const void *copy = (const void *)(block + 3 + 2 * block[0]);
            return memcmp(copy, (const void *)entry[0], entry[1] - entry[0]) == 0;
        }
    }
    return 0;
}

static void wait_for_rules(const void *code) {
    struct timespec moment = {0, 5000000};
    while (!has_rules((uint64_t)code))
        nanosleep(&moment, NULL);
}

__attribute__((noinline)) static void stand(void) {
    static int stood;
    if (!stood++) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    STAY;
}

static unsigned char *new_place(void) {
    void *place = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        abort();
    return place;
}

/* ---- a compiler's object ---- */
static unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(PLACE_BYTES);
    if (!file || !bytes)
        abort();
    *size = fread(bytes, 1, PLACE_BYTES, file);
    fclose(file);
    return bytes;
}

static void relocate(unsigned char *file, Elf64_Shdr *sections, const Elf64_Shdr *relocations) {
    const Elf64_Shdr *into = sections + relocations->sh_info, *symbols = sections + relocations->sh_link;
    const Elf64_Rela *rela = (const Elf64_Rela *)(file + relocations->sh_offset);
    for (size_t i = 0; i < relocations->sh_size / sizeof *rela; i++) {
        const Elf64_Sym *symbol = (const Elf64_Sym *)(file + symbols->sh_offset) + ELF64_R_SYM(rela[i].r_info);
        uint64_t place = into->sh_addr + rela[i].r_offset;
        uint64_t value = sections[symbol->st_shndx].sh_addr + symbol->st_value + (uint64_t)rela[i].r_addend;
        switch (ELF64_R_TYPE(rela[i].r_info)) {
        case R_X86_64_PC32:
        case R_X86_64_PLT32: *(uint32_t *)place = (uint32_t)(value - place); break;
        case R_X86_64_64: *(uint64_t *)place = value; break;
        default: abort();
        }
    }
}

/* A relocatable object whose sections were copied to a place, and not relocated yet. */
struct placed {
    unsigned char *file, *place, *end;
    size_t size;
    Elf64_Ehdr *header;
    Elf64_Shdr *sections;
    long (*entry)(long, void (*)(void));
};

static struct placed place_object(const char *path) {
    struct placed placed = {0};
    placed.file = read_file(path, &placed.size);
    placed.place = placed.end = new_place();
    Elf64_Ehdr *header = placed.header = (Elf64_Ehdr *)placed.file;
    Elf64_Shdr *sections = placed.sections = (Elf64_Shdr *)(placed.file + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (!(sections[i].sh_flags & SHF_ALLOC) || sections[i].sh_size == 0)
            continue;
        placed.end = (unsigned char *)(((uintptr_t)placed.end + 63) & ~(uintptr_t)63);
        memcpy(placed.end, placed.file + sections[i].sh_offset, sections[i].sh_size);
        sections[i].sh_addr = (uint64_t)placed.end;
        placed.end += sections[i].sh_size;
    }
    return placed;
}

static void relocate_object(struct placed *placed) {
    for (int i = 0; i < placed->header->e_shnum; i++)
        if (placed->sections[i].sh_type == SHT_RELA && placed->sections[placed->sections[i].sh_info].sh_addr)
            relocate(placed->file, placed->sections, placed->sections + i);
}

typedef void Function(void *context, const char *name, const unsigned char *code, size_t size);

/* Gives the functions of an object, and finds its `jit_entry`. */
static void each_function(struct placed *placed, Function *give, void *context) {
    for (int i = 0; i < placed->header->e_shnum; i++) {
        const Elf64_Shdr *table = placed->sections + i;
        if (table->sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(placed->file + table->sh_offset);
        const char *names = (const char *)(placed->file + placed->sections[table->sh_link].sh_offset);
        for (size_t s = 0; s < table->sh_size / sizeof *symbols; s++) {
            if (ELF64_ST_TYPE(symbols[s].st_info) != STT_FUNC)
                continue;
            unsigned char *code = (unsigned char *)(placed->sections[symbols[s].st_shndx].sh_addr + symbols[s].st_value);
            if (strcmp(names + symbols[s].st_name, "jit_entry") == 0)
                placed->entry = (long (*)(long, void (*)(void)))code;
            give(context, names + symbols[s].st_name, code, symbols[s].st_size);
        }
    }
}

static void wait_for_function(void *context, const char *name, const unsigned char *code, size_t size) {
    (void)context, (void)name, (void)size;
    wait_for_rules(code);
}
static void no_wait(void *context, const char *name, const unsigned char *code, size_t size) {
    (void)context, (void)name, (void)code, (void)size;
}

/* Calls `jit_entry`, once all functions have rules, if they are to be sampled: rules of some functions may be published
 * before or after those of what they call. */
__attribute__((noinline)) static void run_object(struct placed *placed, void (*work)(void)) {
    each_function(placed, work == call_back ? wait_for_function : no_wait, NULL);
    if (!placed->entry)
        abort();
    if (placed->entry(7, work) == 42)
        puts("chance");
    STAY;
}

/* ---- code by hand ---- */
typedef void Code(void (*)(void), uint64_t);

/* sub $8,%rsp; nopl 0(%rax,%rax); call *%rdi; add $8,%rsp; ret */
static const unsigned char FIRST[] = {0x48, 0x83, 0xec, 8, 0x0f, 0x1f, 0x44, 0, 0, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
/* sub $40,%rsp; mov %rsi,8(%rsp); call *%rdi; add $40,%rsp; ret */
static const unsigned char SECOND[] = {0x48, 0x83, 0xec, 40, 0x48, 0x89, 0x74, 0x24, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 40, 0xc3};

__attribute__((noinline)) static uint64_t own_return_address(void) { return (uint64_t)__builtin_return_address(0); }

__attribute__((noinline)) static uint64_t decoy(void) {
    uint64_t address = own_return_address();
    STAY;
    return address;
}

__attribute__((noinline)) static void run_code(Code *code, uint64_t word) {
    code(call_back, word);
    STAY;
}
