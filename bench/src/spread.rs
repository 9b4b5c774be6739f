//! Chains that go through many libraries, in a process that has loaded many more: beside the same chains in one object.

use crate::chains::{Flavour, Paths, Spread, SPREAD};
use crate::peers::{symbol, Peer};
use crate::table::median;
use std::ffi::{c_int, c_void};
use std::path::Path;

/// Number of libraries that chains go through, as in build.rs, and of the functions in each.
const LIBRARIES: usize = 50;
const EACH: usize = 40;
/// Number of further copies of each library that are loaded, and that no chain goes through.
const COPIES: usize = 9;
const DEPTH: usize = 30;

/// Prints what spreading and loading cost, as ratios to the chains in one object.
pub fn print(peer: &mut Box<dyn Peer>, libuunwind: &str, rounds: usize) {
    let built = Path::new(env!("OUT_DIR"));
    let file = |number: usize| built.join(format!("libpart{number}.so"));
    let mut functions = Vec::new();
    for number in 0..LIBRARIES {
        let table = symbol(&file(number).to_string_lossy(), "part_table").cast::<*const c_void>();
        // SAFETY: an array with that number of functions.
        functions.extend((0..EACH).map(|index| unsafe { *table.add(index) }));
    }
    assert!(SPREAD.set(Spread(functions)).is_ok());
    // SAFETY: int uu_setup(void): rule tables for these libraries, too.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol(libuunwind, "uu_setup"))() };
    println!("\n### {}: chains 30 deep over 8,000 addresses, beside those in one object\n", peer.name());
    println!("| libraries in the chain | loaded | ns (ratio) | ns in one object |\n|---|---|---|---|");
    line(peer, LIBRARIES, rounds);
    let copies = std::env::temp_dir().join(format!("uunwind-bench-{}", std::process::id()));
    std::fs::create_dir_all(&copies).expect("a folder for copies");
    for number in 0..LIBRARIES {
        for copy in 0..COPIES {
            let to = copies.join(format!("libpart{number}-{copy}.so"));
            std::fs::copy(file(number), &to).expect("a copy");
            symbol(&to.to_string_lossy(), "part_table");
        }
    }
    line(peer, LIBRARIES * (COPIES + 1), rounds);
    let _ = std::fs::remove_dir_all(copies);
}

fn line(peer: &mut Box<dyn Peer>, loaded: usize, rounds: usize) {
    let paths = Paths::new(DEPTH, 2000);
    let (mut spread, mut one, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 1 {
        let (a, b) = (paths.time(Flavour::Spread, &mut **peer), paths.time(Flavour::Plain, &mut **peer));
        // The first time, addresses are new.
        if round > 0 {
            spread.push(a);
            one.push(b);
            ratios.push(a / b);
        }
    }
    println!("| {LIBRARIES} | {loaded} | {:.0} (x{:.2}) | {:.0} |", median(spread), median(ratios), median(one));
}
