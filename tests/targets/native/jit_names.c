/* A JIT that keeps its functions in one place and replaces them there: `epoch_1` ... each calls back once, where an explicit
 * sample is taken. It reports their names by the interface that argv[1] names: perf-map, jitdump or gdb-jit. argv[2]
 * is the recording that is being made of it. What it prints is the truth: "epoch_1 0x<address>". */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "gdb_object.h"

#define SIZE 64
#define STAY __asm__ volatile("" ::: "memory")

__attribute__((noinline)) static void call_back(void) {
    long pid = getpid(), tid = syscall(SYS_gettid), result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_tgkill), "D"(pid), "S"(tid), "d"(SIGPROF) : "rcx", "r11", "memory");
    STAY;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *recording;

static off_t written(void) {
    struct stat now;
    if (stat(recording, &now) != 0)
        abort();
    return now.st_size;
}

/* Names without a time get the time at which the recorder read them. When a sample is in the recording file, the recorder has
 * also read all new names, if its last read was a second ago. */
__attribute__((noinline)) static void wait_to_be_seen(void) {
    if (!recording)
        return;
    struct timespec second = {1, 0}, moment = {0, 10000000};
    nanosleep(&second, NULL);
    off_t before = written();
    call_back();
    while (written() == before)
        nanosleep(&moment, NULL);
}

/* ---- jitdump ---- */
struct record { uint32_t id, size; uint64_t time; };
static int dump = -1;

static void put(const void *bytes, size_t len) {
    if (write(dump, bytes, len) != (ssize_t)len)
        abort();
}

static void open_dump(void) {
    char path[64];
    snprintf(path, sizeof path, "jit-%d.dump", getpid());
    dump = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct { uint32_t magic, version, size, machine, pad, pid; uint64_t time, flags; } header = {
        0x4a695444, 1, 40, EM_X86_64, 0, (uint32_t)getpid(), now(), 0};
    put(&header, sizeof header);
    /* The mark by which profilers find the file. */
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) == MAP_FAILED)
        abort();
    wait_to_be_seen();
}

static void report_dump(const char *name, const void *code, int epoch) {
    struct { struct record r; uint64_t at, entries, address; uint32_t line, discriminator; char file[8]; } lines = {
        {2, sizeof lines, now()}, (uint64_t)code, 1, (uint64_t)code, 100 + epoch, 0, "a.jit"};
    put(&lines, sizeof lines);
    struct { struct record r; uint32_t pid, tid; uint64_t vma, at, size, index; } load = {
        {0, (uint32_t)(sizeof load + strlen(name) + 1 + SIZE), now()}, (uint32_t)getpid(), (uint32_t)getpid(),
        (uint64_t)code, (uint64_t)code, SIZE, (uint64_t)epoch};
    put(&load, sizeof load);
    put(name, strlen(name) + 1);
    put(code, SIZE);
}

/* ---- GDB's JIT interface ---- */
static struct entry the_entry;

static void report_gdb(const char *name, const void *code) {
    struct image *image = new_image(code, SIZE);
    add_function(image, name, 0, SIZE);
    /* The entry is always at the same address: only the object's content distinguishes a new one from the one before. */
    free((void *)the_entry.file);
    the_entry = (struct entry){NULL, NULL, image, sizeof *image};
    register_entry(&the_entry);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    recording = argc > 2 ? argv[2] : NULL;
    /* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
    static const unsigned char bytes[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = NULL;
    if (strcmp(way, "perf-map") == 0) {
        map = fopen(path, "w");
        /* Reported first, and later partly covered by the functions in it. */
        fprintf(map, "%lx %x a region\n", (unsigned long)code, 4096);
    }
    if (strcmp(way, "jitdump") == 0)
        open_dump();
    for (int epoch = 1; epoch <= 3; epoch++) {
        char name[16];
        snprintf(name, sizeof name, "epoch_%d", epoch);
        memcpy(code, bytes, sizeof bytes);
        memcpy(code + 2048, bytes, sizeof bytes);
        if (map) {
            fprintf(map, "%lx %x %s\n", (unsigned long)code, SIZE, name);
            fflush(map);
        } else if (dump >= 0) {
            report_dump(name, code, epoch);
        } else if (strcmp(way, "gdb-jit") == 0) {
            report_gdb(name, code);
        }
        if (dump < 0)
            wait_to_be_seen();
        printf("%s %p\n", name, (void *)code);
        ((void (*)(void (*)(void)))code)(call_back);
        if (map)
            ((void (*)(void (*)(void)))(code + 2048))(call_back);
        if (dump < 0)
            wait_to_be_seen();
    }
    if (map) {
        fclose(map);
        unlink(path); /* the recorder has it open */
    }
    return 0;
}
