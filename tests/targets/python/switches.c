/* For switches.py: captures the stack at each instruction of what runs between begin() and end(), by single steps, and
 * counts how these stacks end. `base` is greenlet's function that runs a greenlet. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include "uu.h"

#define TRAP_FLAG 0x100
#define ROOM 512

static volatile int is_on;
static uint64_t base, base_end;
static unsigned long steps, at_base, beyond, whole, in_transit, others;

static void step(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    static uint64_t frames[ROOM];
    uint16_t stop = 0;
    ucontext_t *interrupted = context;
    if (!is_on) {
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
        return;
    }
    size_t count = uu_capture(frames, ROOM, context, &stop);
    steps++;
    size_t found = 0;
    while (found < count) {
        uint64_t address = UU_FRAME_ADDRESS(frames[found]);
        if (!(frames[found] & UU_FRAME_EXACT)) address--;
        if (base <= address && address < base_end) break;
        found++;
    }
    if (stop == UU_STOP_STACK_IN_TRANSIT) in_transit++;
    else if (found < count && found + 1 < count) beyond++;
    else if (found < count && stop == UU_STOP_SWITCHED_STACK) at_base++;
    else if (found == count && (stop == UU_STOP_COMPLETE || stop == UU_STOP_START_SYMBOL)) whole++;
    else {
        others++;
        fprintf(stderr, "stop %u after %zu frames, innermost %#llx\n", stop, count, (unsigned long long)frames[0]);
    }
}

void begin(uint64_t from, uint64_t size) {
    base = from, base_end = from + size;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, 0);
    is_on = 1;
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP_FLAG) : "cc", "memory");
}

void end(void) {
    is_on = 0;
    printf("%lu steps: %lu whole, %lu at a base, %lu in transit, %lu beyond a base, %lu others\n", steps, whole,
           at_base, in_transit, beyond, others);
    fflush(stdout);
}
