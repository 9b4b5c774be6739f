/* reader - reads a recording without uu: its processes, threads and samples, and how often each stack was met, in the
 * folded form of flame graph tools, outermost frame first. What it knows is in docs/recording-format.md.
 *
 *     cc -O2 -Wall -Wextra -o reader examples/reader-c/reader.c
 *     target/uu/bin/uu record -q -r 499 -o compiler.uu -- cc -O2 -c -o reader.o examples/reader-c/reader.c
 *     ./reader compiler.uu
 *
 * A file may hold anything: each length and index is checked before it is used, and what is wrong ends the program
 * with the place. A recording that was cut is an error, too: `uu report` shows what stood before. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 4161           /* frames of a stack */
#define MOST_WORK 20000000000u /* looks at an object: about a minute */

struct text {
    const uint8_t *at;
    uint32_t len;
};
struct process {
    struct text path;
    uint32_t pid, threads, samples;
    size_t first, end; /* of its objects in by_time */
};
struct thread {
    uint32_t process;
};
struct object {
    uint32_t process;
    uint32_t file, named, shared; /* the object to which symbols of its file refer; see name_files() */
    uint64_t time, bias, start, end, key;
    struct text id, path;
};
struct name {
    uint32_t process, id, line;
    struct text name, file;
};
struct node {
    uint32_t parent, depth;
    uint64_t word, second;
};
struct sample {
    uint32_t thread, node;
    uint64_t time;
};
struct symbol {
    uint32_t object;
    uint64_t address;
    struct text name;
};
struct place { /* code made at run time */
    uint32_t process, code;
    uint64_t address, time;
};
struct second { /* a second mapping; `original` is 0 where one has ended */
    uint32_t process;
    uint64_t time, start, end, original;
};
struct stack {
    char *text;
    uint64_t count;
};

#define LIST(type) static struct { type *at; size_t count, room; }
LIST(struct process) processes;
LIST(struct thread) threads;
LIST(struct object) objects;
LIST(struct object *) by_time; /* of each process in turn */
LIST(struct name) names;
LIST(struct node) nodes;
LIST(struct sample) samples;
LIST(struct symbol) symbols;
LIST(struct text) codes;
LIST(struct place) places;
LIST(struct second) seconds;
LIST(char) line;
static void *stacks;
static uint64_t work; /* looks at objects so far */

static const uint8_t *file, *at, *end; /* the whole file; the next byte and the end of what is being read */
static const char *path;

__attribute__((noreturn)) static void fail(const char *why) {
    fprintf(stderr, "reader: %s, byte %td: %s\n", path, at - file, why);
    exit(1);
}

#define ADD(list, ...)                                                                                                 \
    do {                                                                                                               \
        if ((list).count == (list).room) {                                                                             \
            (list).room = (list).room ? 2 * (list).room : 64;                                                          \
            (list).at = reallocarray((list).at, (list).room, sizeof *(list).at);                                       \
            if (!(list).at)                                                                                            \
                fail("not enough memory");                                                                             \
        }                                                                                                              \
        (list).at[(list).count++] = (__VA_ARGS__);                                                                     \
    } while (0)

/* Numbers and texts, from `at` on. */

static const uint8_t *raw(size_t len) {
    if (len > (size_t)(end - at))
        fail("the section or the file ends too early");
    return (at += len) - len;
}
static uint64_t number(int bytes) {
    const uint8_t *from = raw(bytes);
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++)
        n |= (uint64_t)from[i] << 8 * i;
    return n;
}
static uint32_t u32(void) { return number(4); }
static uint64_t u64(void) { return number(8); }
static struct text text(void) {
    uint32_t len = u32();
    return (struct text){raw(len), len};
}
static uint32_t index_below(size_t count) {
    uint32_t index = u32();
    if (index >= count)
        fail("a number of something that was not there before");
    return index;
}

/* Sections. */

static void read_node(void) {
    uint32_t parent = index_below(nodes.count + 1);
    uint32_t depth = 1 + (parent ? nodes.at[parent - 1].depth : 0);
    if (depth > DEEPEST)
        fail("a stack of too many frames");
    uint64_t word = u64();
    ADD(nodes, (struct node){parent, depth, word, u64()});
}

static void read_sample(void) {
    struct sample sample = {.thread = index_below(threads.count)};
    sample.node = index_below(nodes.count + 1), sample.time = u64();
    raw(4 + 2); /* weight, stop reason */
    int is_fatal = number(1) == 2;
    raw(1);
    if (is_fatal) /* stands for no time */
        return;
    ADD(samples, sample);
    processes.at[threads.at[sample.thread].process].samples++;
}

/* A sample whose stack is a copy, which this reader does not walk: it has no frames here. */
static void read_copy(void) {
    struct sample sample = {.thread = index_below(threads.count)};
    uint32_t beside = u32();
    sample.time = u64();
    raw(4 + 2);
    int is_fatal = number(1) == 2;
    raw(1), text();
    if (beside || is_fatal)
        return;
    ADD(samples, sample);
    processes.at[threads.at[sample.thread].process].samples++;
}

static void read_symbols(void) {
    symbols.count = 0;
    for (uint32_t left = u32(); left; left--)
        u32(), text(); /* a file without names */
    for (uint32_t left = u32(); left; left--) {
        struct symbol symbol = {.object = index_below(objects.count)};
        symbol.address = u64(), symbol.name = text();
        ADD(symbols, symbol);
        u64(), text(), u32(); /* start, source file, line */
        for (uint32_t inlined = u32(); inlined; inlined--)
            text(), text(), u32();
    }
}

static void read_jit(void) {
    codes.count = places.count = 0;
    for (uint32_t left = u32(); left; left--) {
        raw(4 + 8 + 8); /* source, start, size */
        ADD(codes, text());
    }
    for (uint32_t left = u32(); left; left--) {
        struct place place = {.process = u32()};
        place.address = u64(), place.time = u64(), place.code = index_below(codes.count + 1);
        ADD(places, place);
        text(), u32(); /* source file, line */
    }
}

/* Reads what is wanted of one section's payload. C does not say in which order the members of an initializer are
 * evaluated, so no two of them read. */
static void read_section(uint32_t kind, uint64_t *expected) {
    switch (kind) {
    case 2: {
        struct process process = {.pid = u32()};
        raw(4 + 4 + 8); /* parent, origin, start */
        process.path = text();
        ADD(processes, process);
        break; /* its plugins are left */
    }
    case 3: {
        uint32_t process = index_below(processes.count);
        ADD(threads, (struct thread){process});
        processes.at[process].threads++;
        break;
    }
    case 5: {
        struct object object = {.process = index_below(processes.count)};
        object.time = u64(), object.bias = u64(), object.start = u64(), object.end = u64(), object.key = u64();
        object.id = text(), object.path = text();
        ADD(objects, object);
        break;
    }
    case 6: {
        struct name name = {.process = index_below(processes.count)};
        name.id = u32();
        raw(4 + 8 + 8); /* plugin, code, fingerprint */
        name.line = u32();
        u32(); /* kind of table */
        name.name = text(), name.file = text();
        ADD(names, name);
        break;
    }
    case 7:
        for (uint32_t left = u32(); left; left--)
            read_node();
        break;
    case 8:
        for (uint32_t left = u32(); left; left--)
            read_sample();
        break;
    case 12:
        raw(8 + 4 + 4 + 4 + 8 + 8); /* time, cause, wait status, CPU times */
        *expected = u64();
        break;
    case 19:
        for (uint32_t left = u32(); left; left--)
            read_copy();
        break;
    case 13: read_symbols(); break;
    case 15: read_jit(); break;
    case 22:
        for (uint32_t left = u32(); left; left--) {
            struct second second = {.process = index_below(processes.count)};
            second.time = u64(), second.start = u64(), second.end = u64(), second.original = u64();
            ADD(seconds, second);
        }
        break;
    }
}

static uint32_t checksum(const uint8_t *from, size_t len) {
    static uint32_t table[256];
    for (uint32_t i = 0; !table[255] && i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
        table[i] = sum;
    }
    uint32_t sum = ~0u;
    while (len--)
        sum = sum >> 8 ^ table[(sum ^ *from++) & 255];
    return ~sum;
}

static void read_file(size_t bytes) {
    const uint8_t *whole = file + bytes;
    uint64_t expected = UINT64_MAX;
    at = file, end = whole;
    if (memcmp(raw(8), "uu-rec01", 8))
        fail("no recording of uu");
    if (u32() != 1)
        fail("another version of the format than 1");
    raw(4);
    while (at < whole) {
        const uint8_t *section = at;
        uint32_t kind = u32(), len = u32();
        const uint8_t *payload = raw(len);
        if (u32() != checksum(section, 8 + (size_t)len)) {
            at = section;
            fail("a section with a wrong checksum");
        }
        at = payload, end = payload + len;
        read_section(kind, &expected);
        at = payload + len + 4, end = whole;
    }
    if (expected == UINT64_MAX)
        fail("the recording was cut: it has no end section");
    if (expected != samples.count)
        fail("samples are missing");
}

/* Names of frames. Lists are sorted once; of equal entries the last in the file counts. */

#define ORDER(a, b)                                                                                                    \
    if ((a) != (b))                                                                                                    \
    return (a) < (b) ? -1 : 1

static int compare_text(struct text a, struct text b) {
    ORDER(a.len, b.len);
    return memcmp(a.at, b.at, a.len);
}
static int in_time(const void *left, const void *right) {
    const struct object *a = *(struct object *const *)left, *b = *(struct object *const *)right;
    ORDER(a->process, b->process);
    ORDER(a->time, b->time);
    ORDER(a, b);
    return 0;
}
static int by_key(const void *left, const void *right) {
    const struct object *a = *(struct object *const *)left, *b = *(struct object *const *)right;
    ORDER(a->key, b->key);
    ORDER(a->process, b->process);
    ORDER(a, b);
    return 0;
}
static int by_id(const void *left, const void *right) {
    const struct object *a = *(struct object *const *)left, *b = *(struct object *const *)right;
    ORDER(a->key, b->key);
    int order = compare_text(a->id, b->id);
    if (!order && (a->shared || !a->id.len))
        order = compare_text(a->path, b->path);
    if (order)
        return order;
    ORDER(a, b);
    return 0;
}

static int by_name_id(const void *left, const void *right) {
    const struct name *a = left, *b = right;
    ORDER(a->process, b->process);
    ORDER(a->id, b->id);
    ORDER(a->name.at, b->name.at);
    return 0;
}
static int by_address(const void *left, const void *right) {
    const struct symbol *a = left, *b = right;
    ORDER(a->object, b->object);
    ORDER(a->address, b->address);
    ORDER(a->name.at, b->name.at);
    return 0;
}
static int by_place(const void *left, const void *right) {
    const struct place *a = left, *b = right;
    ORDER(a->process, b->process);
    ORDER(a->address, b->address);
    ORDER(a->time, b->time);
    return 0;
}

#define SORT(list, order)                                                                                              \
    if ((list).count)                                                                                                  \
    qsort((list).at, (list).count, sizeof *(list).at, order)

/* The last entry of a sorted list that is not after `key`; null if all are. */
static const void *last_until(const void *list, size_t count, size_t size, int (*order)(const void *, const void *),
                              const void *key) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order((const char *)list + middle * size, key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? (const char *)list + (low - 1) * size : 0;
}
#define LAST_UNTIL(list, order, key) last_until((list).at, (list).count, sizeof *(list).at, order, key)

/* Finds the object that stands for each file ("Addresses to objects" in the document). */
static void name_files(void) {
    for (size_t i = 0; i < objects.count; i++)
        ADD(by_time, &objects.at[i]);
    SORT(by_time, by_key);
    for (size_t i = 0, from = 0; i < by_time.count; from = i) {
        uint32_t named = UINT32_MAX, shared = 0;
        const struct object *first = 0; /* with a path, of this process */
        for (; i < by_time.count && by_time.at[i]->key == by_time.at[from]->key; i++) {
            const struct object *o = by_time.at[i];
            if (!o->path.len)
                continue;
            if (!first || first->process != o->process)
                first = o;
            shared |= compare_text(first->path, o->path) != 0;
            named = o - objects.at < named ? o - objects.at : named;
        }
        for (size_t each = from; each < i; each++)
            by_time.at[each]->shared = shared, by_time.at[each]->named = named;
    }
    SORT(by_time, by_id);
    const struct object *first = 0;
    for (size_t i = 0; i < by_time.count; i++) {
        struct object *o = by_time.at[i];
        if (!first || first->key != o->key || compare_text(first->id, o->id) ||
            ((o->shared || !o->id.len) && compare_text(first->path, o->path)))
            first = o;
        o->file = first->path.len || o->named == UINT32_MAX ? first - objects.at : o->named;
    }
    SORT(by_time, in_time);
    for (size_t i = 0; i < by_time.count; i++) {
        struct process *process = &processes.at[by_time.at[i]->process];
        process->first = process->end ? process->first : i;
        process->end = i + 1;
    }
}

static const struct object *find_object(uint32_t process, uint64_t address, uint64_t time) {
    const struct object *found = 0;
    for (size_t i = processes.at[process].first; i < processes.at[process].end; i++) {
        const struct object *o = by_time.at[i];
        if (++work > MOST_WORK)
            fail("too many stacks and objects for this reader");
        if (found && o->time > time)
            break;
        if (o->start <= address && address < o->end)
            found = o;
    }
    return found;
}

/* The address in an object whose code a second mapping has at an address; 0 for none. */
static uint64_t find_original(uint32_t process, uint64_t address, uint64_t time) {
    const struct second *found = 0;
    for (size_t i = 0; i < seconds.count; i++) {
        const struct second *s = &seconds.at[i];
        if (++work > MOST_WORK)
            fail("too many stacks and second mappings for this reader");
        if (s->process == process && s->start <= address && address < s->end && s->time <= time &&
            (!found || found->time <= s->time))
            found = s;
    }
    return found && found->original ? address - found->start + found->original : 0;
}

/* Adds to the line. What would break it, is replaced. */
static void put(struct text text) {
    for (uint32_t i = 0; i < text.len; i++) {
        uint8_t byte = text.at[i];
        ADD(line, byte == ';' ? ':' : byte < ' ' || byte == 127 ? '?' : (char)byte);
    }
}
__attribute__((format(printf, 1, 2))) static void put_format(const char *format, ...) {
    char buffer[64];
    va_list values;
    va_start(values, format);
    int len = vsnprintf(buffer, sizeof buffer, format, values);
    va_end(values);
    put((struct text){(uint8_t *)buffer, len});
}

static void put_native(uint32_t process, uint64_t address, int is_exact, uint64_t time, int in_window) {
    uint64_t lookup = address && !is_exact ? address - 1 : address; /* a return address may be the next function's */
    const struct object *o = in_window ? 0 : find_object(process, lookup, time);
    if (!o) {
        struct place key = {.process = process, .address = lookup, .time = time};
        const struct place *place = LAST_UNTIL(places, by_place, &key);
        if (place && place->process == process && place->address == lookup && place->code) {
            put(codes.at[place->code - 1]);
            return;
        }
        uint64_t original = in_window ? 0 : find_original(process, lookup, time);
        o = original ? find_object(process, original, time) : 0;
        if (!o) {
            put_format("0x%" PRIx64, address);
            return;
        }
        address = original + (address - lookup), lookup = original;
    }
    struct symbol key = {.object = o->file, .address = lookup - o->bias, .name = {end, 0}};
    const struct symbol *symbol = LAST_UNTIL(symbols, by_address, &key);
    if (symbol && symbol->object == o->file && symbol->address == lookup - o->bias && symbol->name.len) {
        put(symbol->name);
        return;
    }
    struct text of = objects.at[o->file].path;
    put(of.len ? of : (struct text){(const uint8_t *)"?", 1});
    put_format("+0x%" PRIx64, address - o->bias);
}

static void put_name(const struct name *name) {
    if (!name) {
        put_format("?");
    } else if (name->name.len) {
        put(name->name);
    } else { /* a function that its language gives no name */
        struct text base = name->file;
        for (uint32_t i = 0; i < name->file.len && name->file.at[0] != '[' && name->file.at[0] != '<'; i++)
            if (name->file.at[i] == '/')
                base = (struct text){name->file.at + i + 1, name->file.len - i - 1};
        put_format("function <");
        put(base);
        put_format(":%" PRIu32 ">", name->line);
    }
}

static void put_frame(const struct node *node, uint32_t process, uint64_t time) {
    uint64_t payload = node->word & 0xffffffffffffff;
    int kind = node->word >> 56 & 15, is_exact = node->word >> 60 & 1;
    uint32_t id = kind == 2 ? node->word : node->second;
    struct name key = {.process = process, .id = id, .name = {end, 0}};
    const struct name *name = kind == 2 || kind == 3 ? LAST_UNTIL(names, by_name_id, &key) : 0;
    if (name && (name->process != process || name->id != id))
        name = 0;
    if (kind == 2)
        put_name(name);
    else if (kind == 3 && name && id)
        put(name->name);
    else if (kind == 1 || kind == 3)
        put_native(process, payload, is_exact, time, kind == 3);
    else if (kind == 4)
        put_format("[%" PRIu32 " frames omitted]", (uint32_t)payload);
    else
        put_format("[frame of unknown kind]");
}

static int by_text(const void *left, const void *right) {
    return strcmp(((const struct stack *)left)->text, ((const struct stack *)right)->text);
}

static void count_stack(const struct sample *sample) {
    uint32_t frames[DEEPEST], process = threads.at[sample->thread].process;
    int depth = 0;
    for (uint32_t node = sample->node; node; node = nodes.at[node - 1].parent)
        frames[depth++] = node;
    line.count = 0;
    while (depth--) {
        const struct node *node = &nodes.at[frames[depth] - 1];
        if ((node->word >> 56 & 31) == (16 | 2)) /* awaits the frames before it: on no stack */
            continue;
        if (line.count)
            ADD(line, ';');
        put_frame(node, process, sample->time);
    }
    if (!line.count)
        put_format("[no frames]");
    ADD(line, 0);
    struct stack new = {.text = line.at}, **found = tsearch(&new, &stacks, by_text);
    if (found && *found == &new) { /* the first of its kind */
        if ((*found = malloc(sizeof new)))
            (*found)->count = 0, (*found)->text = strdup(line.at);
    }
    if (!found || !*found || !(*found)->text)
        fail("not enough memory");
    (*found)->count++;
}

static void print_stack(const void *node, VISIT visit, int depth) {
    const struct stack *stack = *(struct stack *const *)node;
    (void)depth;
    if (visit == postorder || visit == leaf)
        printf("%s %" PRIu64 "\n", stack->text, stack->count);
}

int main(int count, char **words) {
    if (count != 2)
        return fprintf(stderr, "usage: reader RECORDING\n"), 2;
    path = words[1];
    FILE *input = fopen(path, "rb");
    if (!input)
        return perror(path), 1;
    size_t bytes = 0, room = 0, got = 0;
    uint8_t *whole = 0;
    do {
        bytes += got;
        if (bytes == room && !(whole = realloc(whole, room = room ? 2 * room : 1 << 20)))
            return perror(path), 1;
    } while ((got = fread(whole + bytes, 1, room - bytes, input)));
    if (ferror(input))
        return perror(path), 1;
    file = whole;
    read_file(bytes);
    name_files();
    SORT(names, by_name_id);
    SORT(symbols, by_address);
    SORT(places, by_place);
    printf("%zu processes, %zu threads, %zu samples\n", processes.count, threads.count, samples.count);
    for (size_t i = 0; i < processes.count; i++) {
        const struct process *process = &processes.at[i];
        line.count = 0;
        put(process->path);
        ADD(line, 0);
        printf("process %" PRIu32 ": %" PRIu32 " threads, %" PRIu32 " samples, %s\n", process->pid, process->threads,
               process->samples, line.at);
    }
    printf("\n");
    for (size_t i = 0; i < samples.count; i++)
        count_stack(&samples.at[i]);
    twalk(stacks, print_stack);
    return fflush(stdout) || ferror(stdout) ? (perror("standard output"), 1) : 0;
}
