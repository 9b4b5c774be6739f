/* Code generated at run time whose only unwind data are FDEs registered by the compiler runtimes' interface. Each function keeps no frame pointer
 * (rbp is used for something else), calls back once, where an explicit sample is taken, and returns. argv[1] says which
 * functions of the interface are used; what is printed is the truth: "jit 0x<address> 0x<end>". */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STAY __asm__ volatile("" ::: "memory")
struct object { void *words[8]; };
void __register_frame(void *);
void __deregister_frame(void *);
void __register_frame_info(const void *, struct object *);
void __register_frame_info_bases(const void *, struct object *, void *, void *);
void *__deregister_frame_info(const void *);
void *__deregister_frame_info_bases(const void *);
void __register_frame_table(void *);
void __register_frame_info_table(void *, struct object *);
void __register_frame_info_table_bases(void *, struct object *, void *, void *);

__attribute__((noinline)) static void call_back(void) {
    long pid = getpid(), tid = syscall(SYS_gettid), result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_tgkill), "D"(pid), "S"(tid), "d"(SIGPROF) : "rcx", "r11", "memory");
    STAY;
}

/* push rbp; push rbx; sub rsp, 72; mov ebp, 1; call rdi; add rsp, 72; pop rbx; pop rbp; ret */
static const unsigned char code_bytes[] = {0x55, 0x53, 0x48, 0x83, 0xec, 0x48, 0xbd, 1, 0, 0, 0, 0xff, 0xd7,
                                           0x48, 0x83, 0xc4, 0x48, 0x5b, 0x5d, 0xc3};

/* A CIE, an FDE for that function, and the end of the list. */
struct list {
    uint32_t cie_length, cie_id;
    unsigned char cie[16]; /* version 1, "", code 1, data -8, ra 16; def_cfa rsp 8; offset ra 1 */
    uint32_t fde_length, cie_pointer;
    uint64_t start, size;
    unsigned char fde[24];
    uint32_t end;
} __attribute__((packed));

static void describe(struct list *list, const void *code) {
    static const unsigned char cie[16] = {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1};
    static const unsigned char fde[24] = {
        0x41, 0x0e, 16, 0x86, 2,        /* after push rbp: CFA rsp+16, rbp at CFA-16 */
        0x41, 0x0e, 24, 0x83, 3,        /* after push rbx: CFA rsp+24, rbx at CFA-24 */
        0x44, 0x0e, 96,                 /* after sub */
        0x4b, 0x0e, 24,                 /* after add (11 bytes on) */
        0x41, 0x0e, 16,                 /* after pop rbx */
        0x41, 0x0e, 8};                 /* after pop rbp */
    memset(list, 0, sizeof *list);
    list->cie_length = 4 + sizeof cie;
    memcpy(list->cie, cie, sizeof cie);
    list->fde_length = 4 + 16 + sizeof fde;
    list->cie_pointer = (uint32_t)(offsetof(struct list, cie_pointer) - offsetof(struct list, cie_length));
    list->start = (uint64_t)code;
    list->size = sizeof code_bytes;
    memcpy(list->fde, fde, sizeof fde);
}

typedef void function(void (*)(void));

static void *new_code(void) {
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, code_bytes, sizeof code_bytes);
    return code;
}

__attribute__((noinline)) static void run(void *code) {
    printf("jit %p %p\n", code, (void *)((char *)code + sizeof code_bytes));
    ((function *)code)(call_back);
    STAY;
}

static struct list early;
static void *early_code;
/* Before the sampler's own constructor: those of what is loaded later run earlier. */
__attribute__((constructor)) static void register_early(void) {
    early_code = new_code();
    describe(&early, early_code);
    __register_frame(&early);
}

static long rounds;

/* Registers and deregisters as fast as it can: a sample that meets it meets the real functions' locks. */
static void flat_out(double seconds) {
    enum { MANY = 64 };
    struct list *lists = calloc(MANY, sizeof *lists);
    char *code = mmap(NULL, MANY * 64, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec now, begin;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < MANY; i++) {
            describe(&lists[i], code + i * 64);
            memcpy(code + i * 64, code_bytes, sizeof code_bytes);
            __register_frame(&lists[i]);
        }
        for (int i = 0; i < MANY; i++)
            __deregister_frame(&lists[i]);
        rounds++;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
    printf("%ld rounds\n", rounds);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(way, "flat-out") == 0) {
        flat_out(argc > 2 ? atof(argv[2]) : 2);
        return 0;
    }
    if (strcmp(way, "unknown") == 0) {
        static struct list never;
        describe(&never, code_bytes);
        __deregister_frame_info(&never); /* libgcc aborts */
        return 0;
    }
    if (strcmp(way, "early") == 0) {
        run(early_code);
        return 0;
    }
    void *code = new_code();
    static struct list list;
    static struct object object;
    static void *table[2] = {&list, NULL};
    describe(&list, code);
    if (strcmp(way, "one") == 0) {
        /* LLVM's meaning: a single FDE; what follows it is neither an FDE nor the end of a list. */
        list.end = 0x7ffffff0;
        __register_frame(&list.fde_length);
        run(code);
        __deregister_frame(&list.fde_length);
    } else if (strcmp(way, "frame") == 0) {
        __register_frame(&list);
        run(code);
        __deregister_frame(&list);
    } else if (strcmp(way, "info") == 0) {
        __register_frame_info(&list, &object);
        run(code);
        printf("same object: %d\n", __deregister_frame_info(&list) == (void *)&object);
    } else if (strcmp(way, "bases") == 0) {
        __register_frame_info_bases(&list, &object, NULL, NULL);
        run(code);
        printf("same object: %d\n", __deregister_frame_info_bases(&list) == (void *)&object);
    } else if (strcmp(way, "table") == 0) {
        __register_frame_table(table);
        run(code);
        __deregister_frame(table);
    } else if (strcmp(way, "info-table") == 0) {
        __register_frame_info_table(table, &object);
        run(code);
        printf("same object: %d\n", __deregister_frame_info(table) == (void *)&object);
    } else if (strcmp(way, "table-bases") == 0) {
        __register_frame_info_table_bases(table, &object, NULL, NULL);
        run(code);
        printf("same object: %d\n", __deregister_frame_info_bases(table) == (void *)&object);
    }
    /* Deregistered: nothing describes its frames any more. */
    puts("gone");
    ((function *)code)(call_back);
    return 0;
}
