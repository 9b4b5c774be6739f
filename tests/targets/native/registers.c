/* A program that gives unwind data to libgcc, and takes it back, when a line on standard input says "register" or "forget":
   it answers "done". Meanwhile a thread computes. It writes "ready" first, and ends with 0 after the line "end". */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

void __register_frame(void *);
void __deregister_frame(void *);

/* A common entry (version 1, no augmentation, factors 1 and -8, return address in register 16: the CFA is rsp + 8, and the
   return address lies at it - 8), one function, and the end. */
static struct {
    unsigned length, id;
    unsigned char version, augmentation, factors[2], address, rules[7];
    unsigned function_length, distance;
    void *start;
    unsigned long size;
    unsigned end;
} __attribute__((packed, aligned(8))) data = {
    .length = 16, .version = 1, .factors = {1, 0x78}, .address = 16, .rules = {0x0c, 7, 8, 0x90, 1},
    .function_length = 20, .distance = 24,
};
static char code[64];
static volatile unsigned long count;

static void *computes(void *unused) {
    for (;;)
        count++;
    return unused;
}

int main(void) {
    char line[16];
    pthread_t thread;
    data.start = code;
    data.size = sizeof code;
    pthread_create(&thread, NULL, computes, NULL);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (strcmp(line, "register\n") == 0)
            __register_frame(&data);
        else
            __deregister_frame(&data);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
