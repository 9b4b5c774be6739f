/* Uses CPU time in functions by the name of what its recording is then. By the first argument:
 *
 * itself   pauses and resumes its recording itself, and says after each of both what was returned.
 * asked    says its process id, and then, for each line "NAME" on its standard input, burns in that function and says
 *          "done". Ends at the end of its input.
 * labels   sets labels in two threads, and in the child of a fork.
 * attached says "ready", and does the same for each line of its input, and then says "done" and what stopping and starting
 *          its recording has returned. After all, or where nothing records it, "unrecorded" and what setting a label
 *          returns, for a line "alone".
 * refused  says what uu_label_set() returns for labels that cannot be set. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define UU_OPTIONAL
#include "uu.h"

/* CPU time of each burning, in seconds, of the thread's own clock. */
static double each = 0.4;

__attribute__((noinline)) static unsigned spin(void) {
    unsigned n = 1;
    double begun = 0;
    for (;;) {
        struct timespec t;
        for (int i = 0; i < 20000; i++)
            n = n * 1664525u + 1013904223u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        double now = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
        if (begun == 0)
            begun = now;
        else if (now - begun > each)
            return n;
    }
}

#define BURNS(name)                                                                                                   \
    __attribute__((noinline)) static void name(void) {                                                                \
        volatile unsigned n = spin();                                                                                 \
        (void)n;                                                                                                      \
    }
BURNS(recorded)
BURNS(paused)
BURNS(recorded_again)
BURNS(paused_again)
BURNS(of_first)
BURNS(of_second)
BURNS(of_both)
BURNS(of_none)
BURNS(of_child)
BURNS(of_thread)

static int itself(void) {
    recorded();
    printf("stop %d\n", uu_optional_record_stop());
    paused();
    printf("start %d\n", uu_optional_record_start());
    recorded_again();
    printf("stop %d\n", uu_optional_record_stop());
    paused_again();
    return 0;
}

static int asked(void) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"recorded", recorded}, {"paused", paused}, {"recorded_again", recorded_again},
               {"paused_again", paused_again}};
    char line[64];
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (!strcmp(line, all[i].name))
                all[i].run();
        puts("done");
        fflush(stdout);
    }
    return 0;
}

static void must(int result) {
    if (result) {
        printf("refused %d\n", result);
        exit(3);
    }
}

static void *thread(void *unused) {
    of_none();
    must(uu_optional_label_set("request", "/third"));
    of_thread();
    return unused;
}

static int labels(void) {
    pthread_t other;
    must(uu_optional_label_set("request", "/first"));
    of_first();
    /* Of many changes between two samples, the last one counts. */
    for (int i = 0; i < 100000; i++)
        must(uu_optional_label_set("request", i % 2 ? "/second" : "/first"));
    of_second();
    must(uu_optional_label_set("user", "7"));
    of_both();
    void *volatile block = malloc(100);
    free(block);
    fflush(stdout);
    if (fork() == 0) {
        of_child();
        _exit(0);
    }
    wait(NULL);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    must(uu_optional_label_set("request", NULL));
    must(uu_optional_label_set("user", NULL));
    of_none();
    return 0;
}

static int attached(void) {
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "end\n"))
            break;
        if (!strcmp(line, "alone\n")) {
            printf("unrecorded %d\n", uu_optional_label_set("alone", "1"));
            continue;
        }
        labels();
        int stopped = uu_optional_record_stop();
        paused();
        printf("done %d %d\n", stopped, uu_optional_record_start());
    }
    return 0;
}

static int refused(void) {
    char text[400], key[8];
    memset(text, 'x', sizeof text);
    text[399] = 0;
    printf("null %d\n", uu_optional_label_set(NULL, "x"));
    printf("empty %d\n", uu_optional_label_set("", "x"));
    printf("long-value %d\n", uu_optional_label_set("k", text));
    text[256] = 0;
    printf("long-value-by-one %d\n", uu_optional_label_set("k", text));
    text[64] = 0;
    printf("long-key %d\n", uu_optional_label_set(text, "x"));
    printf("no-utf8 %d\n", uu_optional_label_set("k", "\xff"));
    printf("cut-utf8 %d\n", uu_optional_label_set("\xc3", "x"));
    text[64] = 'x';
    text[255] = 0;
    printf("longest-value %d\n", uu_optional_label_set("k", text));
    printf("take-away %d\n", uu_optional_label_set("k", NULL));
    for (int i = 0; i < UU_LABELS; i++) {
        sprintf(key, "k%d", i);
        must(uu_optional_label_set(key, "v"));
    }
    printf("too-many %d\n", uu_optional_label_set("more", "v"));
    printf("changed %d\n", uu_optional_label_set("k3", "w"));
    for (int i = 0; i < 3; i++) {
        sprintf(key, "k%d", i);
        must(uu_optional_label_set(key, text));
    }
    printf("too-much %d\n", uu_optional_label_set("k3", text));
    each = 0.2;
    of_first();
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "itself"))
        return itself();
    if (!strcmp(what, "asked"))
        return asked();
    if (!strcmp(what, "labels"))
        return labels();
    if (!strcmp(what, "attached"))
        return attached();
    return refused();
}
