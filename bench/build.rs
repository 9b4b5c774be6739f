//! Generates the functions under the captures, in C, and compiles them twice: as distributions do, without frame pointers,
//! and with frame pointers for the walk that is the floor.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Each has four call sites, so four return addresses.
const FUNCTIONS: usize = 2000;

fn source() -> String {
    let mut out = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <alloca.h>\n\
         struct path { const uint16_t *steps; size_t left; void (*leaf)(void *); void *argument; };\n\
         typedef unsigned (*function)(struct path *, unsigned);\nextern const function PREFIX_TABLE[];\n\
         #define F __attribute__((noinline, noclone)) static unsigned\n",
    );
    for i in 0..FUNCTIONS {
        let frame = match i % 5 {
            0 => String::new(),
            1 => format!("volatile unsigned char room[{}]; room[s & 7] = (unsigned char)s; ", 16 + (i * 29) % 200),
            2 => "unsigned a = s * 3, b = s ^ 5, c = s + 7; ".to_owned(),
            3 => "unsigned a = s * 3, b = s ^ 5, c = s + 7, d = s / 3, e = s * s; ".to_owned(),
            _ => format!("volatile unsigned room[{}]; room[s & 3] = s; ", 8 + i % 40),
        };
        let keep = match i % 5 {
            2 => "r ^= a ^ b ^ c; ",
            3 => "r ^= a ^ b ^ c ^ d ^ e; ",
            _ => "",
        };
        let _ = writeln!(
            out,
            "F f{i}(struct path *p, unsigned s) {{ {frame}unsigned r; if (p->left == 0) {{ p->leaf(p->argument); r = s; }}\n\
             else {{ unsigned step = *p->steps++; p->left--; function next = PREFIX_TABLE[step >> 2]; switch (step & 3) {{\n\
             case 0: r = next(p, s * 5) + 1; break; case 1: r = next(p, s * 7) ^ 2; break;\n\
             case 2: r = next(p, s * 11) * 3; break; default: r = next(p, s * 13) - 4; }} }}\n{keep}return r * 31 + s; }}"
        );
    }
    out += "const function PREFIX_TABLE[] = {";
    for i in 0..FUNCTIONS {
        let _ = write!(out, "f{i},");
    }
    out += "};\n__attribute__((noinline)) unsigned PREFIX_RUN(struct path *p) {\n\
        unsigned step = *p->steps++; p->left--;\n\
        unsigned r = PREFIX_TABLE[step >> 2](p, 1); __asm__ volatile(\"\" ::: \"memory\"); return r + 1; }\n";
    out += FLOOR;
    out
}

/// The walk by frame pointers. Only its caller's frame pointer must be right; every frame up to the chain's base has one.
const FLOOR: &str = "size_t PREFIX_WALK(uint64_t *frames, size_t count) {\n\
    const uint64_t *frame = __builtin_frame_address(0);\n\
    for (size_t i = 0; i < count; i++) { frames[i] = frame[1]; frame = (const uint64_t *)frame[0]; }\n\
    return count; }\n";

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    std::fs::write(out.join("chains.c"), source()).expect("OUT_DIR is writable");
    for (prefix, option) in [("plain", "-fomit-frame-pointer"), ("framed", "-fno-omit-frame-pointer")] {
        let object = out.join(format!("{prefix}.o"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g0", "-fPIC", option, "-c", "-o"]).arg(&object);
        gcc.arg(format!("-DPREFIX_TABLE={prefix}_table")).arg(format!("-DPREFIX_RUN={prefix}_run"));
        gcc.arg(format!("-DPREFIX_WALK={prefix}_walk"));
        let status = gcc.arg(out.join("chains.c")).status().expect("gcc runs");
        assert!(status.success(), "gcc failed");
        println!("cargo:rustc-link-arg={}", object.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
}
