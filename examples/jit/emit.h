/* What the example's JIT emits: two shapes of functions, and unwind data of each kind for them.
 *
 * A function gets a list of functions in rdi, takes the first off and calls it. The plain shape keeps no frame pointer,
 * and even destroys rbp after saving it, so that its caller cannot be found without unwind data. Its frame has
 * `pad` times 16 bytes.
 */
#ifndef EMIT_H
#define EMIT_H

#include <stdint.h>
#include <string.h>
#include <uu.h>

typedef void function(void **rest);

enum { FRAMED_BYTES = 13, FRAMED_RETURN = 11, PLAIN_BYTES = 20, PLAIN_RETURN = 14 };

/* push %rbp; mov %rsp,%rbp; add $8,%rdi; call *-8(%rdi); pop %rbp; ret */
static size_t emit_framed(unsigned char *to) {
    static const unsigned char code[FRAMED_BYTES] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xc7,
                                                     8,    0xff, 0x57, 0xf8, 0x5d, 0xc3};
    memcpy(to, code, sizeof code);
    return sizeof code;
}

/* push %rbp; xor %ebp,%ebp; sub $16*pad,%rsp; add $8,%rdi; call *-8(%rdi); add $16*pad,%rsp; pop %rbp; ret */
static size_t emit_plain(unsigned char *to, unsigned pad) {
    const unsigned char size = (unsigned char)(16 * pad);
    const unsigned char code[PLAIN_BYTES] = {0x55, 0x31, 0xed, 0x48, 0x83, 0xec, size, 0x48, 0x83, 0xc7,
                                             8,    0xff, 0x57, 0xf8, 0x48, 0x83, 0xc4, size, 0x5d, 0xc3};
    memcpy(to, code, sizeof code);
    return sizeof code;
}

/* The plain shape: where rows of its unwind table begin, and the distance of the CFA from rsp. rbp is saved from row 1
 * to 3. */
enum { ROWS = 5 };
static const unsigned row_starts[ROWS] = {0, 1, 7, 18, 19};
static unsigned row_cfa(unsigned row, unsigned pad) {
    return row == 0 || row == ROWS - 1 ? 8 : row == 2 ? 16 + 16 * pad : 16;
}
static int row_has_rbp(unsigned row) { return row > 0 && row < ROWS - 1; }

static unsigned char *put(unsigned char *to, const void *bytes, size_t count) {
    memcpy(to, bytes, count);
    return to + count;
}

/* ---- .eh_frame (LSB 5.0, 10.6; DWARF 5, 6.4) --------------------------------------------------------------------- */

/* A CIE: version 1, "zR" with absolute pointers, CFA = rsp + 8, return address at CFA - 8. 24 bytes. */
static unsigned char *emit_cie(unsigned char *to) {
    static const unsigned char cie[24] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0, 12, 7, 8, 0x90, 1, 0, 0};
    return put(to, cie, sizeof cie);
}

/* An FDE of a plain function. */
static unsigned char *emit_fde(unsigned char *to, const unsigned char *cie, const unsigned char *text, unsigned pad) {
    unsigned char *const begin = to;
    to += 4;
    const uint32_t distance = (uint32_t)(to - cie);
    to = put(to, &distance, 4);
    const uint64_t range[2] = {(uintptr_t)text, PLAIN_BYTES};
    to = put(to, range, sizeof range);
    *to++ = 0; /* no augmentation data */
    for (unsigned row = 1; row < ROWS; row++) {
        *to++ = (unsigned char)(0x40 | (row_starts[row] - row_starts[row - 1])); /* DW_CFA_advance_loc */
        *to++ = 14;                                                              /* DW_CFA_def_cfa_offset */
        *to++ = (unsigned char)row_cfa(row, pad);
        if (row == 1) {
            *to++ = 0x80 | 6; /* DW_CFA_offset rbp, 2 * -8 */
            *to++ = 2;
        } else if (row == ROWS - 1) {
            *to++ = 0xc0 | 6; /* DW_CFA_restore rbp */
        }
    }
    while ((to - begin) % 4)
        *to++ = 0; /* DW_CFA_nop */
    const uint32_t length = (uint32_t)(to - begin - 4);
    put(begin, &length, 4);
    return to;
}

/* ---- SFrame, version 2 ------------------------------------------------------------------------------------------- */

/* A section with the functions at `starts`, which ascend. Returns its length. */
static size_t emit_sframe(unsigned char *to, unsigned char *const *starts, const unsigned *pads, unsigned count) {
    enum { HEADER = 28, FDE = 20 };
    unsigned char *const begin = to, *const fdes = begin + HEADER, *const fres = fdes + FDE * count;
    to = fres;
    for (unsigned i = 0; i < count; i++) {
        const int32_t start = (int32_t)(starts[i] - begin);
        const uint32_t fde[4] = {(uint32_t)start, PLAIN_BYTES, (uint32_t)(to - fres), ROWS};
        unsigned char *end = put(fdes + FDE * i, fde, sizeof fde);
        memset(end, 0, 4); /* rows by distance from the start, 1 byte each */
        for (unsigned row = 0; row < ROWS; row++) {
            const int rbp = row_has_rbp(row);
            *to++ = (unsigned char)row_starts[row];
            *to++ = (unsigned char)(1 | (rbp ? 2 : 1) << 1); /* from rsp; one or two offsets, of 1 byte */
            *to++ = (unsigned char)row_cfa(row, pads[i]);
            if (rbp)
                *to++ = (unsigned char)-16;
        }
    }
    const uint32_t words[6] = {0, count, ROWS * count, (uint32_t)(to - fres), 0, FDE * count};
    /* magic, version, flags (sorted), AMD64, no fixed rbp, return address at CFA - 8, no further header */
    const unsigned char preamble[8] = {0xe2, 0xde, 2, 1, 3, 0, (unsigned char)-8, 0};
    put(begin, preamble, sizeof preamble);
    put(begin + 8, words + 1, 20);
    return (size_t)(to - begin);
}

/* ---- A rule by callback ------------------------------------------------------------------------------------------ */

/* The rule at `offset` in a plain function. */
static void give_rule(unsigned offset, unsigned pad, struct uu_rule *rule) {
    unsigned row = ROWS - 1;
    while (row > 0 && row_starts[row] > offset)
        row--;
    rule->kind = 0;
    rule->reg = 7; /* rsp */
    rule->offset = (int32_t)row_cfa(row, pad);
    rule->slots[1] = row_has_rbp(row) ? -2 : UU_SAME;
}

#endif
