//! The corpus: sections written by GNU binutils 2.40, 2.44 and 2.47.50, LLVM 23.1 and mold 3.0, one case a line, with
//! the rows that an independent decoder, itself compared with `readelf --sframe`, finds in them.
//!
//! `v1`, `v2`, `v3`: as the assembler and linker of those versions wrote them; `v2e`: version 2 with its errata,
//! derived from these; `quirk`: what other linkers leave in. Rows are `[start, CFA, return address, frame pointer]`:
//! `BASE+N` is a value, `*(BASE+N)` a word in memory, `c` the CFA, `sp`, `fp` and `rN` registers, null a value that is
//! not described.
#![allow(dead_code, reason = "each test uses its part")]

use serde_json::Value;

/// One section.
pub struct Case {
    /// `SET/MACHINE/CASE.KIND`
    pub name: String,
    pub address: u64,
    pub bytes: Vec<u8>,
    pub functions: Vec<Value>,
    /// Where its rows are wrong: its producer's errors, found by comparison with .eh_frame.
    pub wrong: Vec<String>,
}

pub const SETS: [&str; 5] = ["v1", "v2", "v2e", "v3", "quirk"];

pub fn cases() -> Vec<Case> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let read = |set| std::fs::read_to_string(folder.join(format!("{set}.jsonl"))).expect("a set of the corpus");
    SETS.iter().flat_map(|set| read(set).lines().map(case).collect::<Vec<_>>()).collect()
}

fn case(line: &str) -> Case {
    let value: Value = serde_json::from_str(line).expect("a case");
    let text = |v: &Value| v.as_str().expect("text").to_owned();
    let bytes = text(&value["bytes"]);
    let bytes =
        (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).expect("hex")).collect();
    Case {
        name: text(&value["name"]),
        address: number(&value["address"]),
        bytes,
        functions: value["functions"].as_array().expect("functions").clone(),
        wrong: value["wrong"].as_array().map_or(Vec::new(), |list| list.iter().map(text).collect()),
    }
}

/// A number written in hex.
pub fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().expect("text").trim_start_matches("0x"), 16).expect("hex")
}
