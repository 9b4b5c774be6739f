//! A generated C program whose calls are known: functions `f0`, `f1`, ... of every frame size, each with four call
//! sites, so that any stack can be checked against the graph, wherever the program was interrupted.

use crate::samples::{Frame, Sample};
use std::fmt::Write;

/// Number of functions of the program.
pub const FUNCTIONS: usize = 150;
/// Deepest chain of them.
pub const DEPTH: u32 = 40;

/// The functions that `caller` may call.
pub fn callees(caller: usize) -> [usize; 4] {
    [1, 2, 3, 4].map(|k| (caller * (2 * k + 1) + 17 * k * k + 5) % FUNCTIONS)
}

/// The program. It runs for `seconds` of CPU time, then prints a number.
pub fn source(seconds: f64) -> String {
    let mut out = String::from("#include <stdio.h>\n#include <string.h>\n#include <time.h>\n#include <alloca.h>\n");
    out += "#define F __attribute__((noinline, noclone)) static unsigned\nstatic volatile unsigned sink;\n";
    out += "F spin(unsigned s) { for (int i = 0; i < 200; i++) s = s * 1664525u + 1013904223u; return s; }\n";
    for i in 0..FUNCTIONS {
        let _ = writeln!(out, "F f{i}(unsigned, unsigned);");
    }
    for i in 0..FUNCTIONS {
        let frame = match i % 4 {
            0 => String::new(),
            1 => format!("volatile char room[{}]; room[0] = (char)s; ", 16 + (i * 37) % 3000),
            2 => format!(
                "char *room = alloca({} + s % 64); memset(room, (int)d, 8); sink += (unsigned)room[3]; ",
                64 + i
            ),
            _ => "unsigned a = s * 3, b = s ^ d, c = s + d, e = s / 3, g = s * s; ".to_owned(),
        };
        let keep = if i % 4 == 3 { "r += a ^ b ^ c ^ e ^ g; " } else { "" };
        let [w, x, y, z] = callees(i);
        let _ = writeln!(
            out,
            "F f{i}(unsigned s, unsigned d) {{ {frame}unsigned r; if (d == 0) r = spin(s); else switch ((s >> 8) & 3) {{\n\
             case 0: r = f{w}(s * 5 + 1, d - 1) + 1; break; case 1: r = f{x}(s * 7 + 3, d - 1) ^ 2; break;\n\
             case 2: r = f{y}(s * 11 + 5, d - 1) * 3; break; default: r = f{z}(s * 13 + 7, d - 1) - 4; }}\n\
             {keep}return r * 31 + d; }}"
        );
    }
    let _ = writeln!(
        out,
        "int main(void) {{ unsigned s = 1, r = 0; struct timespec t; do {{ for (int i = 0; i < 1000; i++) {{\n\
         s = s * 1664525u + 1013904223u; r += f0(s, s % {DEPTH}); }} clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);\n\
         }} while (t.tv_sec + t.tv_nsec / 1e9 < {seconds}); printf(\"%d\\n\", r != 12345); return 0; }}"
    );
    out
}

/// Checks a stack of the program: from the interrupted instruction, through functions that call each other, to `main`.
/// Stacks outside the chain (start-up, `clock_gettime`) must end in `main` or before it. Returns the chain's length.
pub fn check(sample: &Sample) -> Result<usize, String> {
    let names: Vec<&str> = sample.frames.iter().map(Frame::name).collect();
    let number = |name: &str| name.strip_prefix('f').and_then(|n| n.parse::<usize>().ok());
    let start = names.iter().take_while(|n| number(n).is_none()).count();
    let chain: Vec<usize> = names[start..].iter().map_while(|n| number(n)).collect();
    if chain.is_empty() {
        return if names.contains(&"spin") { Err("spin without a caller".into()) } else { Ok(0) };
    }
    if names[..start].iter().any(|n| !matches!(*n, "spin" | "?") && !n.contains("memset")) {
        return Err(format!("{:?} called by f{}", &names[..start], chain[0]));
    }
    for pair in chain.windows(2) {
        if !callees(pair[1]).contains(&pair[0]) {
            return Err(format!("f{} does not call f{}", pair[1], pair[0]));
        }
    }
    if chain.last() != Some(&0) || names.get(start + chain.len()) != Some(&"main") {
        return Err(format!(
            "f{:?} called by {:?}, expected f0 and main",
            chain.last(),
            names.get(start + chain.len())
        ));
    }
    Ok(chain.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str]) -> Sample {
        let frame = |name: &&str| Frame::Native {
            symbol: (*name).to_owned(),
            offset: 0,
            object: String::new(),
            address: 0,
            exact: false,
            by_frame_pointer: false,
            by_code: false,
            interpreter: false,
        };
        Sample { frames: names.iter().map(frame).collect(), ..Sample::default() }
    }

    #[test]
    fn a_chain_that_the_graph_does_not_have_is_wrong() {
        let child = format!("f{}", callees(0)[2]);
        let stranger = (1..FUNCTIONS).find(|n| !callees(0).contains(n)).expect("more functions than call sites");
        assert_eq!(check(&stack(&["spin", &child, "f0", "main", "_start"])), Ok(2));
        assert_eq!(check(&stack(&["clock_gettime", "main"])), Ok(0));
        let stranger = format!("f{stranger}");
        for wrong in
            [&["spin", &stranger, "f0", "main"][..], &["spin", &child, "main"], &["spin", &child], &["spin", "main"]]
        {
            assert!(check(&stack(wrong)).is_err(), "{wrong:?} passed");
        }
    }
}
