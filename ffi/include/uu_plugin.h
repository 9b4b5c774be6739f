/* uu_plugin.h - how an unwinder is written as a shared object: plugin interface, version 1.
 *
 * A plugin is a shared object that exports one function, uu_plugin(). It teaches the walk about code whose frames it
 * cannot know by itself: it adds the frames of an interpreted language to the native frames that host them (overlay),
 * steps through code whose unwind tables are wrong or absent (step), or gives rules for such code as data (rule).
 *
 * `uu record` takes plugins from lib/uu/plugins beside itself, and from the files and folders that UU_PLUGINS names,
 * separated by colons. It opens each in a process of its own, and in every recorded process in which there may be facts
 * of one.
 *
 *     #include <uu_plugin.h>
 *     static uint32_t overlay(struct uu_view *view) { ... }
 *     static const struct uu_plugin table = {
 *         .size = sizeof table, .abi = UU_PLUGIN_ABI, .name = "mylang", .overlay = overlay, .analyse = analyse };
 *     const struct uu_plugin *uu_plugin(uint32_t host_abi) { return host_abi >= UU_PLUGIN_ABI ? &table : 0; }
 *
 *     cc -O2 -shared -fPIC -nostartfiles -Wl,-z,now -o mylang.so mylang.c
 *
 * TWO HALVES
 *
 * analyse, line and call run outside signal handlers and may do what ordinary code may. analyse looks at an ELF file,
 * once for each file, and turns it into facts: plain bytes, whose layout only the plugin knows. Where it finds facts,
 * the object is the plugin's: its frames are shown to the signal half.
 *
 * overlay, step and rule are signal code. They run inside a signal handler that interrupted any instruction of any
 * program, malloc and the dynamic linker included. They must
 *   - allocate nothing, take no lock, touch no thread-local variable, and call no function of another object (that
 *     means libc, too: only memcpy, memmove, memset and memcmp are safe; link with -z now);
 *   - read foreign memory only by host->read, read_word and read_words, which fail where a load would crash; and
 *     believe nothing that they read: it may be wrong, and change between two reads;
 *   - end every loop by a bound that stands in the code;
 *   - use at most 1 KiB of stack, and not recurse;
 *   - keep state in view->scratch (one walk long) or in atomic variables of their own: threads run at the same time.
 *
 * CONTAINMENT, AND ITS LIMITS
 *
 * Every call of signal code has a recovery point. One that faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL), jumps to nowhere,
 * destroys registers, answers nonsense, moves the cursor backwards, goes on emitting after emit has returned false, or
 * is still running after 8 ticks of the sampling timer is abandoned: what it emitted is discarded, the frame is stepped
 * natively, the failure is counted under the plugin's name and shown in the report. After 3 failures in a process the
 * plugin is off there. An analyse that crashes, hangs or writes too much costs the plugin that object; after 3 its
 * analyse half is off.
 *
 * What cannot be contained:
 *   - writes: a plugin that writes where it should not destroys the program;
 *   - a destroyed stack pointer or an overflowing stack, on a thread without an alternate signal stack: the kernel
 *     kills the process, for it has nowhere to put the fault's frame;
 *   - loops where no sampling timer runs; and signals that the plugin itself sends or blocks.
 *
 * `uu dump` and `uu record -p` look at a process from outside. There the plugin runs in a process of uu's, which no
 * failure leaves: view->facts and view->scratch are memory of that process, all else is the walked process's and read
 * by the host's functions only. Texts of the plugin's own must say so (2 or 3 in uu_text.utf8). Name ids hold for one
 * walk. A call that takes more than 20 ms of CPU time, or makes any system call, switches the plugin off.
 *
 * This header needs C99 or C++98, and no library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef UU_PLUGIN_H
#define UU_PLUGIN_H

#include "uu.h" /* struct uu_rule, enum uu_stop */
#ifndef __cplusplus
#include <stdbool.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version that this header describes. */
#define UU_PLUGIN_ABI 1u

/* Bytes of scratch memory that one walk keeps for each plugin. */
#define UU_SCRATCH_BYTES 512u

/* Most facts that one object may have, in bytes; the `capacity` that analyse gets. */
#define UU_FACTS_LIMIT 65536u

/* Numbers of registers: DWARF's. `registers` has them in this order. */
#ifdef __aarch64__
#define UU_REGISTERS 32 /* x0 to x30, sp */
#define UU_FP 29        /* x29, the frame pointer */
#define UU_LR 30        /* x30, the link register */
#define UU_SP 31        /* the stack pointer */
#else
#define UU_REGISTERS 16
#define UU_FP UU_RBP
#define UU_SP UU_RSP
#define UU_RAX 0
#define UU_RDX 1
#define UU_RCX 2
#define UU_RBX 3
#define UU_RSI 4
#define UU_RDI 5
#define UU_RBP 6
#define UU_RSP 7
#define UU_R8 8
#define UU_R9 9
#define UU_R10 10
#define UU_R11 11
#define UU_R12 12
#define UU_R13 13
#define UU_R14 14
#define UU_R15 15
#endif

struct uu_host;
struct uu_caller;

/* ---- What signal code sees --------------------------------------------------------------------------------------- */

/* The current frame. Valid during the call only; the plugin changes nothing in it but *caller, used and restored. The
 * host may be newer and its view longer: see `size`. */
struct uu_view {
    uint32_t size;          /* sizeof(struct uu_view), as the host was built: at least this header's */
    uint32_t exact;         /* 1: pc is the interrupted instruction (leaf, or below a signal frame); 0: a return
                               address, so the call is at pc - 1 */
    uint64_t pc;            /* instruction pointer; an address in this process */
    uint64_t sp;            /* stack pointer */
    uint64_t cfa;           /* canonical frame address: the stack pointer before the call that made this frame, which is
                               [sp, cfa). overlay only; 0 in step and rule: not known */
    uint64_t function_start;/* first address of the function, by its unwind table; 0 when unknown. overlay only */
    uint64_t function_end;  /* its end, exclusive */
    uint64_t registers[UU_REGISTERS]; /* in DWARF order (UU_SP ...), where known; in rule, the stack pointer only */
    uint32_t known;         /* bit n: registers[n] is known here. At a leaf all are, in its callers callee-saved ones */
    uint32_t plugin;        /* the index of this plugin in this process, 1 to 30; 0 for a window's function */
    const uint8_t *facts;   /* what analyse found in this object, 16-aligned; read-only. Null for a window's function */
    size_t facts_len;       /* bytes */
    uint64_t bias;          /* load bias of the object: address in the process minus address in the file. 0 for a
                               window */
    uint8_t *scratch;       /* UU_SCRATCH_BYTES for this plugin in this walk, 16-aligned, zero at its first call in the
                               walk. Null in rule, and sometimes for windows' functions */
    uint64_t thread_pointer;/* %fs:0 (AArch64: TPIDR_EL0) of the walked thread; 0 in rule */
    uint64_t tsd_offset;    /* where the thread's first block of pthread-specific values lies, {seq, data}[32], as bytes
                               from the thread pointer; 0 when it could not be found, and in rule */
    const struct uu_host *host; /* the walk's functions */
    void *walk;             /* their first argument */
    uint64_t range_start;   /* text range of the object or window that covers pc */
    uint64_t range_end;     /* its end, exclusive */
    uint64_t generation;    /* a number that no other object or window in the same place ever had or will have */
    void *user;             /* the user pointer of the window; null for objects */
    struct uu_caller *caller; /* step only: to be filled; null otherwise */
    uint32_t used;          /* to be set: bit n: the plugin looked at registers[n], so its answer may depend on it. The
                               host sets all bits, and a plugin may leave it so. The fewer, the more often a walk's rest
                               is taken over from the thread's last walk. The stack pointer's bit has no meaning.
                               overlay and step only */
    uint32_t restored;      /* to be set, step only: bit n: caller->registers[n] depends on no register of this frame
                               but those in `used`: it was read from memory, or is not known. The host sets no bit */
    uint32_t flags;         /* UU_WANT_AWAITING + UU_STACK_CUT */
    uint32_t reserved;      /* zero */
    const uint64_t *stack;  /* lock only: the sample's innermost native frames, leaf first: of each the address to look
                               its function up by, the interrupted pc or the last byte of the call. Null otherwise */
    size_t stack_len;       /* addresses in stack, at most UU_STACK_FRAMES */
};

#define UU_STACK_FRAMES 16u
/* In view->flags, in lock: the walk could not go on after the last frame in `stack`. */
#define UU_STACK_CUT 2u

/* In view->flags: the walk takes frames with UU_AWAITING. It is the same in all walks of a recording. */
#define UU_WANT_AWAITING 1u
/* Added to a name that emit_all gets: the frame is none of the stack. It waits for the frames that were emitted before
 * it to end, and was found in the runtime's memory: a coroutine that awaits the task that runs. Only if the walk takes
 * them. */
#define UU_AWAITING (UINT64_C(1) << 63)


/* A frame, as step leaves it, and as host->native_step takes and gives it. */
struct uu_caller {
    uint64_t pc;            /* instruction pointer, not 0 */
    uint64_t registers[UU_REGISTERS]; /* in DWARF order; the stack pointer is registers[UU_SP], a multiple of 8 */
    uint32_t known;         /* bit n: registers[n] is known. Be honest: clear the bit of what is not certain. The stack
                               pointer's bit must be set */
    uint32_t exact;         /* 1: pc is an interrupted instruction; 0: a return address */
};

/* A text somewhere in the process. The host copies it, the report decodes it. */
struct uu_text {
    uint64_t address; /* of the first byte */
    uint32_t len;     /* bytes. Of a name or file name the first 1,024 are copied; a line table above 49,152 is left
                         out */
    uint16_t width;   /* bytes per character: 1 (Latin-1, unless utf8 is 1 or 3), 2 (UCS-2) or 4 (UCS-4) */
    uint16_t utf8;    /* 1: the bytes are UTF-8, and width is 1; 2 or 3: 0 or 1, and the bytes are the plugin's own (a
                         constant, or on its stack), which a host that looks from outside reads in its own process */
};

/* What names a code object: a function of the interpreted language. */
struct uu_description {
    uint64_t code;        /* address of the code object */
    uint64_t fingerprint; /* as given to find_name: of the words that name it, so that what is made later at the same
                             address is another code object */
    struct uu_text name;  /* of the function, qualified if the language has it */
    struct uu_text file;  /* source file */
    struct uu_text table; /* line table; len 0: none */
    uint32_t first_line;  /* from 1; 0 when unknown */
    uint32_t table_kind;  /* UU_TABLE_NONE, or a number of the plugin's own: its `line` gets it, with a copy of the
                             table */
};
#define UU_TABLE_NONE 0u /* no table: the position of a frame is its line */

/* What covers an address. */
struct uu_owner {
    uint64_t start;      /* of the text range */
    uint64_t end;        /* exclusive */
    uint64_t bias;       /* load bias of an object; 0 for a window */
    uint64_t generation; /* as uu_view.generation */
    uint32_t kind;       /* UU_OWNER_* */
    uint32_t plugin;     /* index of the plugin that claims it; 0: none */
    const uint8_t *facts; /* what that plugin's analyse half found in it; null: nothing */
    size_t facts_len;    /* bytes */
};
#define UU_OWNER_NONE 0u
#define UU_OWNER_OBJECT 1u
#define UU_OWNER_WINDOW 2u

#define UU_KEY_WORDS 5    /* of a key of recall */
#define UU_ANSWER_WORDS 2 /* of its answer */
#define UU_POINT_WORDS 10 /* of the state that rest_is_known compares */

/* What signal code may call, with view->walk as first argument, during the call only. All are async-signal-safe and
 * bounded. In rule, only the reads do anything; the others answer 0, false or
 * UU_OWNER_NONE. */
struct uu_host {
    uint32_t size; /* sizeof(struct uu_host), as the host was built: at least this header's */
    uint32_t abi;  /* the newest version that the host speaks */
    /* Reads one 64-bit word at any address. False: it cannot be read, and *out is as it was. */
    bool (*read_word)(void *walk, uint64_t address, uint64_t *out);
    /* Reads `len` bytes. False: not all of them can be read; `out` may be partly written. */
    bool (*read)(void *walk, uint64_t address, uint8_t *out, size_t len);
    /* The name id of a code object that was described before; 0: it was not, call describe. */
    uint32_t (*find_name)(void *walk, uint64_t code, uint64_t fingerprint);
    /* Copies what names a code object out of the process, once. Its name id; 0: no room now, or its texts cannot be
       read. A frame may be emitted with id 0, and shows as unnamed. In uu_capture(), which has native frames only, what
       is emitted is dropped. */
    uint32_t (*describe)(void *walk, const struct uu_description *description);
    /* Emits one frame of the language, leaf first. `position`: the line, or what the line table is asked for. False:
       the stack is full; return at once. A call that goes on emitting is abandoned. */
    bool (*emit)(void *walk, uint32_t name, uint64_t position);
    /* Says that the plugin has learned something that makes it answer the same inputs in another way. */
    void (*learned)(void *walk);
    /* What covers an address. Always fills *out. */
    void (*lookup)(void *walk, uint64_t address, struct uu_owner *out);
    /* Steps *frame to its caller by the core's own sources. 0: done; 1: done by a frame pointer that nothing vouches
       for; negative: not done, minus a number of enum uu_stop (uu.h), and *frame is as it was. */
    int32_t (*native_step)(void *walk, struct uu_caller *frame);
    /* Reads `count` 64-bit words of one structure: out[i] is the word at address + offsets[i] (bytes). False: one of
       them cannot be read; `out` may be partly written. Cheaper than as many calls of read_word. */
    bool (*read_words)(void *walk, uint64_t address, const uint32_t *offsets, size_t count, uint64_t *out);
    /* What this plugin has worked out for this key before, on this thread, if every word that it read for it still
       reads the same: true, and `answer` is filled. False: there is none, and `answer` is as it was; what is read from
       here on belongs to the answer. */
    bool (*recall)(void *walk, const uint64_t key[UU_KEY_WORDS], uint64_t answer[UU_ANSWER_WORDS]);
    /* Keeps the answer for a key for which recall, called just before, had none. It must follow from the key, from
       what was read since, and from nothing else: neither from what was read before, nor from the frame or
       view->scratch. It may hold name ids. Where there is no room for it, it is worked out again the next time. */
    void (*remember)(void *walk, const uint64_t key[UU_KEY_WORDS], const uint64_t answer[UU_ANSWER_WORDS]);
    /* In overlay and step, between two frames: says what the rest of the call depends on. What it still emits,
       answers, makes of the caller's frame, and leaves in view->scratch must follow from these words, from what it
       reads from here on, from view->scratch as it was before the call, and from the facts, sp and CFA; neither from
       the pc and other registers nor from what was read before. `order` becomes less from call to call, in the same way
       on each walk: a position on the language's stack. True: the thread's last walk was at the same point, and its
       rest is this one's; return at once, with any answer. */
    bool (*rest_is_known)(void *walk, uint64_t order, const uint64_t state[UU_POINT_WORDS]);
    /* Emits `count` frames, leaf first: as many calls of emit, with frames[i][0] as the name (plus UU_AWAITING where
       that holds) and frames[i][1] as the position. False: the stack is full. */
    bool (*emit_all)(void *walk, const uint64_t (*frames)[2], size_t count);
    /* For plugins that are built from uu's own crates: the walk's reader, for a stretch in which no other function
       is called, if `layout` is that of this build. Null for all others: what it points to is described nowhere, and
       changes. */
    void *(*lend_reader)(void *walk, uint64_t layout);
    /* In overlay and step, of a plugin that has `left` more frames to emit in this call: how many of them, next in
       turn, it shall leave out. They count as frames, and the stack says how many were left out. 0 unless the stack has
       more frames than are kept (4,096 from the leaf and 64 from the root). Asking at every 256th frame is often
       enough. */
    uint32_t (*omit)(void *walk, uint32_t left);
    /* Hashes `len` bytes, and their number: the same bytes have the same hash, anywhere in this process, and it is
       64 bits wide, so that equal hashes may be taken for equal bytes. False: some of them cannot be read, and *out is
       as it was. What names a code object belongs into its fingerprint, byte by byte: where one died, another may have
       all its parts at the same addresses. */
    bool (*hash)(void *walk, uint64_t address, size_t len, uint64_t *out);
};

/* ---- What signal code answers ------------------------------------------------------------------------------------ */

/* overlay answers a sum of these: */
#define UU_OVERLAY_NONE 0u        /* this frame is not an activation of my interpreter */
#define UU_OVERLAY_INTERPRETER 1u /* it belongs to the interpreter, and viewers may hide it */
#define UU_OVERLAY_DESYNC 2u      /* frames are missing or doubtful here; counted, and shown */

/* step answers one of these, plus UU_OVERLAY_* flags: */
#define UU_STEP_NATIVE 0u          /* not mine: the core steps, and overlay is asked */
#define UU_STEP_DONE 0x100u        /* *view->caller is the caller. Its stack pointer lies above this frame's */
#define UU_STEP_END 0x200u         /* this is the outermost frame */
#define UU_STEP_LOST 0x300u        /* mine, but the caller is not known: the walk ends, with that reason */
#define UU_STEP_OTHER_STACK 0x400u /* with UU_STEP_DONE: the caller is on another stack, at any address */

/* Both may add: */
#define UU_UNTOUCHED 0x1000u /* this call has left view->scratch as it was, which then need not be looked through */

/* lock answers one of these: */
#define UU_LOCK_UNKNOWN 0u /* not to be said at this instruction */
#define UU_LOCK_NONE 1u    /* the thread neither holds the lock nor waits for it */
#define UU_LOCK_HELD 2u    /* it holds the lock */
#define UU_LOCK_WAITING 3u /* it waits for the lock */

/* rule fills a struct uu_rule (uu.h) and answers 1, or answers 0: none here. */

/* ---- What analyse sees ------------------------------------------------------------------------------------------- */

/* An ELF file. Its bytes are hostile: check every offset. */
struct uu_object_file {
    uint32_t size;           /* sizeof(struct uu_object_file), as the host was built */
    uint32_t reserved;       /* zero */
    const char *path;        /* where the file is, as far as that is known */
    const uint8_t *data;     /* the whole file, mapped read-only */
    size_t len;              /* bytes */
    const uint8_t *build_id; /* its build-id; null when it has none */
    size_t build_id_len;     /* bytes */
    void *host;              /* first argument of the functions */
    /* Finds a symbol, in the dynamic symbol table or else in the full one. True: *address and *size are as in the
       file. */
    bool (*symbol)(void *host, const char *name, uint64_t *address, uint64_t *size);
    /* Fills `out` with what the file holds at an address of its segments. False: it does not hold all `len` bytes. */
    bool (*read)(void *host, uint64_t address, uint8_t *out, size_t len);
    /* Reports to people, in one line of UTF-8 without the file's name, why an object that is the plugin's is not
       served. Up to 1,024 bytes are kept. */
    void (*note)(void *host, const char *text);
};

/* ---- What line and reports see ----------------------------------------------------------------------------------- */

/* What reports must know of the language: constant data. It is copied where analyse runs, and travels in the recording:
 * a report, on any machine, needs no plugin. Null pointers: nothing. Texts are NUL-terminated UTF-8 of at most 255
 * bytes; a list ends with a null pointer, and at most 1,024 of its texts are read. */
struct uu_language {
    uint32_t size;               /* sizeof(struct uu_language) */
    uint32_t reserved;           /* zero */
    const char *label;           /* begins the language's lines in the format "samples": a word of up to 16 bytes. Null:
                                    the plugin's name */
    const char *const *glue;     /* native functions that only pass a call on from one frame of the language to another:
                                    their names, or beginnings of names with a * after them. Reports hide them by
                                    default, in objects that host frames of the plugin. OBJECT!FUNCTION, each a name or
                                    the beginning of one: a function of a binding to native code, in any object with
                                    that file name; * alone: all functions, unnamed ones, too */
    const char *const *loaders;  /* source files of the language whose functions find and load other code */
    const char *const *starters; /* functions in these that run what was loaded. Reports hide by default the frames of
                                    loaders by which code runs; those that search or load are shown. OBJECT!FUNCTION: by
                                    it bindings call native code. Their frames are hidden where they pass a call on */
};

/* A position in a code object, whose line is wanted. */
struct uu_position {
    uint32_t size;        /* sizeof(struct uu_position), as the host was built: at least this header's */
    uint32_t table_kind;  /* as described; never UU_TABLE_NONE */
    uint32_t first_line;  /* as described */
    uint32_t reserved;    /* zero */
    const uint8_t *table; /* a copy of the line table. Its bytes are hostile */
    size_t table_len;     /* bytes; 0: it could not be copied */
    uint64_t position;    /* as emitted */
};

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* A load in a plugin's signal code that may fault, for plugins that write such loads in assembly. When it faults in a
 * walk, execution goes on elsewhere, registers as they are; the code there says that the load failed. Only for
 * addresses that can be anything: all others are read by host->read_word. */
struct uu_fixup {
    int32_t load;   /* bytes from this field to the load's instruction */
    int32_t failed; /* bytes from this field to where execution goes on */
};
/* All of them: a constant table, from `start` to before `end`; two nulls: there are none. */
struct uu_fixups {
    const struct uu_fixup *start;
    const struct uu_fixup *end;
};

/* A plugin's table. It lives as long as the process; plugins are never unloaded. Every function may be null, which
 * means that it does nothing; so does what lies after `size` bytes, in a plugin that is older than the host. */
struct uu_plugin {
    uint32_t size;     /* sizeof(struct uu_plugin) */
    uint32_t abi;      /* the version that the plugin speaks: UU_PLUGIN_ABI */
    char name[16];     /* short name, NUL-padded: it labels facts, frames and failures. Unique among plugins */
    uint32_t flags;    /* UU_PLUGIN_* flags, or 0 */
    uint32_t scratch_bytes; /* how many bytes of its scratch memory it uses, from the first on, at most
                               UU_SCRATCH_BYTES; 0: all. The fewer, the cheaper is it to reuse the last walk */
    /* Signal code. For each native frame in an object of the plugin's, leaf first, once its CFA is known: emits the
       frames of the language that this native frame hosts, if any. A sum of UU_OVERLAY_*. */
    uint32_t (*overlay)(struct uu_view *view);
    /* Signal code. For each frame in an object of the plugin's, before any rule is looked for. May emit, too. */
    uint32_t (*step)(struct uu_view *view);
    /* Signal code. The rule for view->pc: a pure function of the pc (and of `exact`), the facts, and memory that
       does not change while the object is loaded; registers are not shown. Asked once for a pc, and remembered. `*rule`
       holds a rule of the right size, to be changed. 1: filled; 0: none here, the object's own tables are asked;
       anything else is nonsense. */
    uint32_t (*rule)(struct uu_view *view, struct uu_rule *rule);
    /* Not signal code; in a process of uu's own, with 5 seconds and 1 GiB of memory. Bytes of facts written to
       `facts`, at most `capacity`; 0: not mine; negative: mine, but not served (give the reason by object->note). An
       object belongs to the first plugin that claims it. */
    ptrdiff_t (*analyse)(const struct uu_object_file *object, uint8_t *facts, size_t capacity);
    /* Not signal code, unless the plugin says so of a `what`. A request of the program, by uu_plugin_call() of uu.h.
       0 or a negative errno; -ENOSYS for a `what` that the plugin does not know. */
    int32_t (*call)(uint32_t what, void *argument, size_t size);
    struct uu_fixups fixups; /* of its own signal code */
    /* What reports must know of the language; null: nothing. */
    const struct uu_language *language;
    /* Not signal code; runs where analyse runs, when the recording ends, once for each position that samples met in
       code objects whose table_kind is not UU_TABLE_NONE: its line, or 0 where the table does not say (the first line
       is shown). */
    uint32_t (*line)(const struct uu_position *position);
    /* Signal code. After the walk of a sample, for each loaded object of the plugin's that some walk of the process has
       met: how the thread stands to the lock that the runtime in this object runs code under, one of UU_LOCK_*. The
       view has the interrupted registers, pc and sp, the object's facts, bias and range, thread_pointer, and the
       sample's innermost frames in `stack`; cfa is 0 and scratch null. Of the host's functions, the reads do
       something. */
    uint32_t (*lock)(struct uu_view *view);
};

/* In `flags`: no function of the plugin looks at view->registers (pc, sp and CFA it may). Walks are then reused more
 * often. */
#define UU_PLUGIN_NO_REGISTERS 1u
/* In `flags`: step is also asked about frames whose pc no object and no window covers, with null facts: a JIT's code
 * that was registered nowhere. Plugins are asked by index until one steps. */
#define UU_PLUGIN_UNOWNED 2u
/* In `flags`: no function of the plugin looks at view->function_start and function_end. They are 0, which spares a
 * search in the object's tables for each frame. */
#define UU_PLUGIN_NO_FUNCTION 4u
/* flags, with UU_PLUGIN_UNOWNED: `step` is asked about such frames only, not about frames in claimed objects. */
#define UU_PLUGIN_STEP_UNOWNED_ONLY 8u
/* flags: overlay, step and rule read foreign memory by the host's functions only, so that they raise no fault whatever
 * they are shown. They are then also called by uu_walk() where nothing contains faults. */
#define UU_PLUGIN_CHECKED_READS 16u
/* flags: `line` is signal code, too, a bounded, pure function of what it is passed: uu_describe() calls it. */
#define UU_PLUGIN_LINE_IN_HANDLERS 32u
/* flags, with UU_PLUGIN_UNOWNED: in code that no object and no window covers, step is asked once for each loaded object
 * of the plugin's, with its facts, bias and generation (range_start and range_end are 0), and not at all while there is
 * none. For a runtime whose memory says where the code is that it makes, which may grow. */
#define UU_PLUGIN_UNOWNED_FACTS 64u

/* The one function that a plugin exports: its table, or null when it cannot serve a host that speaks `host_abi`, the
 * newest version that the host knows. Called more than once, outside signal handlers. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct uu_plugin *uu_plugin(uint32_t host_abi);

#ifdef __cplusplus
}
#endif

#endif
