/* toy.h - a tiny interpreter, as its unwinder must know it. */
#ifndef TOY_H
#define TOY_H

#include <stdint.h>

/* A function of the language. */
struct toy_function {
    const char *name;
    const char *file;
    uint32_t name_len, file_len;
    uint32_t first_line;
    uint32_t serial;      /* never used twice: distinguishes a function from one that was made later at the same address */
    const int32_t *code;  /* words of bytecode */
    const uint8_t *lines; /* for each word, lines after the first */
    uint32_t words;       /* of both */
};

/* A running call of a function. Calls within the language share one C call of toy_run; each C call is an activation. */
struct toy_frame {
    struct toy_frame *outer;
    const struct toy_function *function;
    const int32_t *ip; /* the instruction that runs */
    void *activation;  /* an address inside the frame of the C call of toy_run that runs it */
    int64_t argument;
};

/* The interpreter's state. The program has one, under the name toy_vm, and one thread runs it. (Where each thread has
 * its own, a plugin finds it from uu_view.thread_pointer: by a static thread-local's offset, or a pthread key's
 * number.) */
struct toy_vm {
    struct toy_frame *frame; /* innermost */
};

#endif
