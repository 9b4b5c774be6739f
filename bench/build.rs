//! Generates the functions under the captures, in C, and compiles them three times: as distributions do, without frame
//! pointers; with frame pointers for the walk that is the floor; and, without, spread over [`LIBRARIES`] shared
//! libraries.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Each has four call sites, so four return addresses.
const FUNCTIONS: usize = 2000;
/// Each has as many functions as the others.
const LIBRARIES: usize = 50;

/// Of a hundred functions, three have a frame of variable size, and two align it to more than the ABI does, as
/// compilers make them. Those have a frame pointer; and of one of the two the CFA is a word of the frame (`-8(%rbp)`).
fn frame(i: usize) -> String {
    match i % 100 {
        17 | 50 | 83 => {
            "volatile unsigned char *room = alloca((s & 63) + 16); room[s & 7] = (unsigned char)s; ".to_owned()
        }
        33 => "_Alignas(64) volatile unsigned char room[64]; room[s & 7] = (unsigned char)s; ".to_owned(),
        67 => "_Alignas(64) volatile unsigned char room[64]; volatile unsigned char *more = alloca((s & 63) + 16); \
               more[s & 7] = room[s & 7] = (unsigned char)s; "
            .to_owned(),
        _ => plain(i),
    }
}

/// The others: nothing, an array, or many values that live across the call.
fn plain(i: usize) -> String {
    match i % 5 {
        0 => String::new(),
        1 => format!("volatile unsigned char room[{}]; room[s & 7] = (unsigned char)s; ", 16 + (i * 29) % 200),
        2 => "unsigned a = s * 3, b = s ^ 5, c = s + 7; ".to_owned(),
        3 => "unsigned a = s * 3, b = s ^ 5, c = s + 7, d = s / 3, e = s * s; ".to_owned(),
        _ => format!("volatile unsigned room[{}]; room[s & 3] = s; ", 8 + i % 40),
    }
}

fn source(functions: std::ops::Range<usize>) -> String {
    let mut out = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <alloca.h>\n\
         struct path; typedef unsigned (*function)(struct path *, unsigned);\n\
         struct path { const uint16_t *steps; size_t left; void (*leaf)(void *); void *argument; const function *table; };\n\
         #define F __attribute__((noinline, noclone)) static unsigned\n",
    );
    for i in functions.clone() {
        let frame = frame(i);
        let keep = match i % 5 {
            _ if matches!(i % 100, 17 | 33 | 50 | 67 | 83) => "",
            2 => "r ^= a ^ b ^ c; ",
            3 => "r ^= a ^ b ^ c ^ d ^ e; ",
            _ => "",
        };
        let _ = writeln!(
            out,
            "F f{i}(struct path *p, unsigned s) {{ {frame}unsigned r; if (p->left == 0) {{ p->leaf(p->argument); r = s; }}\n\
             else {{ unsigned step = *p->steps++; p->left--; function next = p->table[step >> 2]; switch (step & 3) {{\n\
             case 0: r = next(p, s * 5) + 1; break; case 1: r = next(p, s * 7) ^ 2; break;\n\
             case 2: r = next(p, s * 11) * 3; break; default: r = next(p, s * 13) - 4; }} }}\n{keep}return r * 31 + s; }}"
        );
    }
    out += "const function PREFIX_TABLE[] = {";
    for i in functions {
        let _ = write!(out, "f{i},");
    }
    out += "};\n__attribute__((noinline)) unsigned PREFIX_RUN(struct path *p, size_t further) {\n\
        volatile char *room = alloca(further + 1); room[0] = 0; unsigned step = *p->steps++; p->left--;\n\
        unsigned r = p->table[step >> 2](p, 1); __asm__ volatile(\"\" ::: \"memory\"); return r + room[0]; }\n";
    out += FLOOR;
    out
}

fn gcc(options: &[&str], prefix: &str, from: &Path, to: &Path) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g0", "-fPIC", "-o"]).arg(to).args(options).arg(from);
    gcc.arg(format!("-DPREFIX_TABLE={prefix}_table")).arg(format!("-DPREFIX_RUN={prefix}_run"));
    gcc.arg(format!("-DPREFIX_WALK={prefix}_walk")).arg(format!("-DPREFIX_WALK_FROM={prefix}_walk_from"));
    assert!(gcc.status().expect("gcc runs").success(), "gcc failed");
}

/// The walk by frame pointers. Only its caller's frame pointer must be right; every frame up to the chain's base has
/// one.
const FLOOR: &str = "size_t PREFIX_WALK_FROM(uint64_t *frames, size_t count, const uint64_t *frame) {\n\
    for (size_t i = 0; i < count; i++) { frames[i] = frame[1]; frame = (const uint64_t *)frame[0]; }\n\
    return count; }\n\
    size_t PREFIX_WALK(uint64_t *frames, size_t count) {\n\
    const uint64_t *frame = __builtin_frame_address(0);\n\
    for (size_t i = 0; i < count; i++) { frames[i] = frame[1]; frame = (const uint64_t *)frame[0]; }\n\
    return count; }\n";

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let chains = out.join("chains.c");
    std::fs::write(&chains, source(0..FUNCTIONS)).expect("OUT_DIR is writable");
    for (prefix, option) in [("plain", "-fomit-frame-pointer"), ("framed", "-fno-omit-frame-pointer")] {
        let object = out.join(format!("{prefix}.o"));
        gcc(&[option, "-c"], prefix, &chains, &object);
        println!("cargo:rustc-link-arg={}", object.display());
    }
    let each = FUNCTIONS / LIBRARIES;
    for number in 0..LIBRARIES {
        let part = out.join("part.c");
        std::fs::write(&part, source(number * each..(number + 1) * each)).expect("OUT_DIR is writable");
        gcc(
            &["-fomit-frame-pointer", "-shared", "-Wl,--build-id"],
            "part",
            &part,
            &out.join(format!("libpart{number}.so")),
        );
    }
    println!("cargo:rerun-if-changed=build.rs");
}
