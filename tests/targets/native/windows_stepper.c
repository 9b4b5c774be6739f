/* Every instruction of every change of the registry, of dlopen and of fork: a walk at each one.

   The trap flag makes the processor stop after each instruction. The handler of that trap walks, from a made-up context whose
   pc lies in a window, and asks for a change. The walk must see the window as it was before the change or as it is after it,
   and once it has seen the new state never the old one again. The change must be refused or done, and never hang.

   Usage: windows_stepper OBJECT; prints a line for each kind of change: its name and how many instructions were stepped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <uu.h>

#define TRAP_FLAG 0x100
#define MANY 2000
#define TEXT(i) ((void *)(0x100000000000ul + 0x10000ul * (i)))

static uint64_t stack[64]; /* ends at once: a saved rbp and a return address of 0 */
static long steps;
static int refused;
/* Generation that a walk may see in window 1: before, after; 0: no window. Which one was seen last. */
static uint32_t before, after, seen;
static int any_new; /* the new generation is not known beforehand */

static void die(const char *what, uint64_t value) {
    fprintf(stderr, "windows_stepper: %s (%#llx) after %ld steps\n", what, (unsigned long long)value, steps);
    _exit(3);
}

/* The generation of window `i` as a walk sees it; 0: none. */
static uint32_t look(int i) {
    ucontext_t context;
    uint64_t frames[8];
    uint16_t stop = 0;
    memset(&context, 0, sizeof context);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)TEXT(i) + 0x123;
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    context.uc_mcontext.gregs[REG_RBP] = (greg_t)(stack + 2);
    const size_t count = uu_capture(frames, 8, &context, &stop);
    if (count == 0)
        die("no answer", stop);
    return UU_FRAME_KIND(frames[0]) == UU_FRAME_WINDOW ? UU_FRAME_GENERATION(frames[1]) : 0;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    if (info->si_code == SI_KERNEL) { /* int3: begin or end */
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] ^= TRAP_FLAG;
        return;
    }
    steps++;
    const uint32_t now = look(1);
    if (any_new && now != before && !after)
        after = now;
    if (now != before && now != after)
        die("neither old nor new", now);
    if (seen == after && now != after)
        die("old again", now);
    seen = now;
    if (look(0) == 0)
        die("a window that was not changed is gone", 0);
    if (steps % 7 == 0) {
        uint64_t ticket;
        const int result = uu_unlink_window(TEXT(9), &ticket);
        if (result != -ENOENT && result != -EDEADLK)
            die("a change in the handler", (uint64_t)result);
        refused += result == -EDEADLK;
    }
}

#define STEP() __asm__ volatile("int3" ::: "memory")

static struct uu_window window(int i) {
    struct uu_window w;
    memset(&w, 0, sizeof w);
    w.size = sizeof w;
    w.kind = UU_WINDOW_FRAME_POINTER;
    w.text = TEXT(i);
    w.text_len = 0x1000;
    return w;
}

/* One change: steps through it, and checks where it led. */
#define CHANGE(name, appears, goes, call)                                                                              \
    do {                                                                                                               \
        before = seen = look(1);                                                                                       \
        after = (goes) ? 0 : (appears) ? 0 : before;                                                                   \
        any_new = (appears);                                                                                           \
        if (appears)                                                                                                   \
            seen = before ? before : ~0u;                                                                              \
        const long begun = steps;                                                                                      \
        refused = 0;                                                                                                   \
        STEP();                                                                                                        \
        const long result = (long)(call);                                                                              \
        STEP();                                                                                                        \
        const uint32_t now = look(1);                                                                                  \
        if (((goes) && now) || ((appears) && (now == before || !now)) || (!(goes) && !(appears) && now != before))     \
            die(name ": in the end", now);                                                                             \
        printf("%s result %ld steps %ld refused %d\n", name, result, steps - begun, refused);                          \
        fflush(stdout);                                                                                                \
    } while (0)

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    if (uu_handle_faults() || sigaction(SIGTRAP, &action, 0))
        return 2;
    struct uu_window w0 = window(0), w1 = window(1);
    static struct uu_window wide[MANY];
    if (uu_register_window(&w0))
        return 2;
    uint64_t ticket = 0;
    const void *const old[] = {TEXT(1)};

    CHANGE("register", 1, 0, uu_register_window(&w1));
    CHANGE("overlap", 0, 0, uu_register_window(&w1));
    CHANGE("seal", 0, 0, uu_seal_window(TEXT(1)));
    CHANGE("replace", 1, 0, uu_replace_windows(old, 1, &w1, 1, &ticket));
    CHANGE("unlink", 0, 1, uu_unlink_window(TEXT(1), &ticket));
    CHANGE("synchronize", 0, 0, uu_synchronize(ticket, 1000000000));
    CHANGE("ticket", 0, 0, uu_ticket() > ticket ? 0 : 1);
    CHANGE("again", 1, 0, uu_register_window(&w1));
    /* Through splits and joins of nodes, and the freeing of old ones; and enough windows that walks cache where they found one. */
    for (int i = 0; i < MANY; i++) {
        wide[i] = window(10 + i);
        if (i != 100 && uu_register_window(&wide[i]))
            return 2;
    }
    CHANGE("register among many", 0, 0, uu_register_window(&wide[100]));
    CHANGE("replace among many", 1, 0, uu_replace_windows(old, 1, &w1, 1, &ticket));
    CHANGE("unlink among many", 0, 1, uu_unlink_window(TEXT(1), &ticket));
    CHANGE("again among many", 1, 0, uu_register_window(&w1));
    CHANGE("unregister among many", 0, 0, uu_unregister_window(wide[100].text));
    for (int i = 0; i < MANY - 1; i++)
        if (i != 100 && uu_unregister_window(wide[i].text))
            return 2;
    CHANGE("unregister", 0, 1, uu_unregister_window(TEXT(1)));
    CHANGE("unknown", 0, 0, uu_unregister_window(TEXT(1)));
    void *object = 0;
    CHANGE("dlopen", 0, 0, !(object = dlopen(argv[1], RTLD_NOW)));
    CHANGE("dlclose", 0, 0, dlclose(object));
    pid_t child = -1;
    CHANGE("fork", 0, 0, (child = fork()) < 0);
    if (child == 0) {
        CHANGE("child's register", 1, 0, uu_register_window(&w1));
        CHANGE("child's unregister", 0, 1, uu_unregister_window(TEXT(1)));
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        die("the child", (uint64_t)status);
    printf("all well\n");
    return 0;
}
