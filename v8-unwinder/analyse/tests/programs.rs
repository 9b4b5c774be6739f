//! The Nodes of this machine.

#[path = "../../../tests/src/nodes.rs"]
mod nodes;

use nodes::Node;
use std::path::Path;
use uunwind_elf::Image;
use uunwind_language::Finding;
use uunwind_v8::facts::{State, Whole, HANDLER, INTERPRETER, OTHER};
use uunwind_v8_analyse::analyse;

/// Bytes in memory that is aligned as facts must be.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks(8).map(word).collect()
}

fn image(path: &Path) -> Image {
    Image::open(path).unwrap_or_else(|why| panic!("{}: {why:?}", path.display()))
}

#[test]
fn these_nodes_are_served() {
    let missing = |major| uunwind_skips::skipped("facts of Node", &format!("this machine has no Node {major}"));
    for node in nodes::served(missing) {
        is_served(&node);
    }
}

fn is_served(node: &Node) {
    let image = image(&node.path);
    let bytes = match analyse(&image) {
        Finding::Facts(bytes) => bytes,
        Finding::Refused(why) => return uunwind_skips::skipped("facts of Node", &why),
        Finding::Unclaimed => panic!("{}: no V8 was found", node.path.display()),
    };
    let words = aligned(&bytes);
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes.len()).collect();
    let whole = Whole::read(&copy).expect("facts that the signal half accepts");
    println!("Node {}: {} bytes; {:x?}", node.version, bytes.len(), whole.facts.v8);
    // The builtins, by the symbols of the file.
    let at = |name: &str, inside: u64| {
        let symbol = image.any_symbol(&format!("Builtins_{name}")).expect(name);
        let (builtin, state) = whole.at((symbol.address + inside - whole.facts.blob) as u32).expect(name);
        assert_eq!(u64::from(builtin.start) + whole.facts.blob, symbol.address, "{name}");
        (builtin.kind(), state)
    };
    assert_eq!(at("InterpreterEntryTrampoline", 0), (INTERPRETER, State::Above(0)));
    assert_eq!(at("LdaSmiHandler", 0), (HANDLER, State::Above(0)));
    assert_eq!(at("ArrayMap", 0), (OTHER, State::Above(0)));
    // push %rbp; mov %rsp,%rbp
    assert_eq!(at("ArrayMap", 1), (OTHER, State::Above(1)));
    assert_eq!(at("ArrayMap", 4), (OTHER, State::Framed));
    assert!(whole.facts.entry_saves.iter().all(|below| *below != 0), "{:?}", whole.facts.entry_saves);
}
