/* A sample at every instruction, against a shadow stack.

   The trap flag makes the processor stop after each instruction. The handler of that trap keeps the shadow stack (a
   `call` pushes its return address; what lies below the stack pointer is gone), and sends the sampling signal, which is
   blocked while the handler runs: it is delivered when the handler returns, at the very instruction that was stopped at.
   So there are samples in every prologue and epilogue, in PLT stubs, and inside libc and the dynamic linker.

   Usage: stepper STRIDE; one sample every STRIDE instructions. Writes one line a sample to $UU_TEST_ORACLE:
     step <pid> <tid> <pc> <return address>...          innermost first, up to the function that began */
#define _GNU_SOURCE
#include "ring.h"
#include "routines.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MAX_STEPS 400000
#define MAX_SAMPLES 60000
#define MAX_DEPTH 200
#define TRAP_FLAG 0x100

static struct { uint64_t slot, address; } shadow[MAX_DEPTH];
static int depth;
static uint64_t last_pc, last_sp;
static long steps, stride;
static uint64_t *out; /* pc, depth, addresses, and so on */
static size_t used;
static long samples;

/* Whether the instruction at `pc` is a call: prefixes, then E8, or FF with 2 in the middle of its next byte. */
static int is_call(uint64_t pc) {
    const unsigned char *at = (const unsigned char *)pc;
    while (*at == 0x66 || *at == 0x67 || *at == 0xf2 || *at == 0xf3 || *at == 0x3e || *at == 0x2e || (*at & 0xf0) == 0x40)
        at++;
    return *at == 0xe8 || (*at == 0xff && (at[1] & 0x38) == 0x10);
}

static void take_sample(uint64_t pc) {
    if (samples >= MAX_SAMPLES) {
        fprintf(stderr, "stepper: more samples than it has room for\n");
        _exit(3);
    }
    samples++;
    out[used++] = pc;
    out[used++] = (uint64_t)depth;
    for (int i = depth - 1; i >= 0; i--)
        out[used++] = shadow[i].address;
    wait_for_room();
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
}

static void on_trap(int number, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)regs[REG_RIP], sp = (uint64_t)regs[REG_RSP];
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        regs[REG_EFL] ^= TRAP_FLAG;
        depth = 0;
        last_pc = 0;
        return;
    }
    if (last_pc && sp == last_sp - 8 && is_call(last_pc) && depth < MAX_DEPTH) {
        shadow[depth].slot = sp;
        shadow[depth].address = *(uint64_t *)sp;
        depth++;
    }
    while (depth > 0 && shadow[depth - 1].slot < sp)
        depth--;
    last_pc = pc;
    last_sp = sp;
    if (++steps > MAX_STEPS) {
        fprintf(stderr, "stepper: too many instructions\n");
        _exit(3);
    }
    if (steps % stride == 0)
        take_sample(pc);
}

static void write_oracle(void) {
    const char *path = getenv("UU_TEST_ORACLE");
    FILE *file = fopen(path ? path : "/dev/null", "w");
    for (size_t at = 0; at < used;) {
        fprintf(file, "step %d %ld 0x%lx", getpid(), syscall(SYS_gettid), (unsigned long)out[at]);
        size_t count = out[at + 1];
        at += 2;
        while (count--)
            fprintf(file, " 0x%lx", (unsigned long)out[at++]);
        fprintf(file, "\n");
    }
    fclose(file);
}

int main(int argc, char **argv) {
    stride = argc > 1 ? atol(argv[1]) : 1;
    out = malloc(sizeof *out * MAX_SAMPLES * 40);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGPROF);
    sigaction(SIGTRAP, &action, 0);
    find_ring();
    __asm__ volatile("int3" ::: "memory");
    int result = routines();
    __asm__ volatile("int3" ::: "memory");
    write_oracle();
    printf("result %d, %ld samples in %ld instructions\n", result, samples, steps);
    return 0;
}
