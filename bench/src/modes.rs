//! What a program gains by preparing itself: `uunwind-bench modes LIBRARY [ROUNDS [WORDS]]`; with WORDS, the tables
//! whose titles contain them.
//!
//! Captures of a program that has called nothing, of one that has called uu_handle_faults(), and of one that has called
//! uu_setup() as well, beside the other unwinders. No call can be taken back, so each figure is measured in a child
//! process of its own; its ratio is to the floor in the same child, in turn with it.

use crate::chains::Paths;
use crate::least;
use crate::peers::{self, Mode, Peer};
use crate::table::median;
use crate::{measure, never_seen, Measured, Timing};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

const DEPTHS: [usize; 3] = [30, 100, 300];
const MODES: [(Mode, &str); 3] = [
    (Mode::Nothing, "uu_capture, nothing called"),
    (Mode::Handled, "uu_capture, uu_handle_faults()"),
    (Mode::Prepared, "uu_capture, uu_handle_faults() and uu_setup()"),
];

/// The title of the table with a line that says what can be reached.
const THOUSANDS: &str = "thousands of addresses";

/// How one table is measured.
enum What {
    /// A round over these chains. `through`: in a handler, without its ucontext.
    Rounds { chains: fn(usize) -> Paths, time: Timing, through: bool },
    /// Each address for the first time.
    New,
}

/// Makes an unwinder.
type Make = fn() -> Box<dyn Peer>;

/// Prints the tables.
pub fn run(library: &str, rounds: usize, only: &str) {
    let called: Timing = |paths, flavour, peer, _| Some(paths.time(flavour, peer));
    let interrupted: Timing = |paths, flavour, peer, truth| paths.time_in_handler(flavour, peer, truth, false);
    let again = |depth| Paths::again(depth, 400);
    let many = |depth| Paths::new(depth, 2000);
    let tables: [(&str, What); 6] = [
        ("the same stack again", What::Rounds { chains: |depth| Paths::new(depth, 1), time: called, through: false }),
        (
            "the same stack, in a handler, through the signal frame",
            What::Rounds { chains: again, time: interrupted, through: true },
        ),
        (THOUSANDS, What::Rounds { chains: many, time: called, through: false }),
        (
            "thousands of addresses, in a handler, from its ucontext",
            What::Rounds { chains: many, time: interrupted, through: false },
        ),
        (
            "the same stack again: uu_walk",
            What::Rounds { chains: |depth| Paths::new(depth, 1), time: called, through: true },
        ),
        ("never seen before", What::New),
    ];
    for (title, what) in tables.into_iter().filter(|(title, _)| title.contains(only)) {
        let depths: &[usize] = if matches!(what, What::New) { &DEPTHS[..1] } else { &DEPTHS };
        println!("\n### {title}, to frame pointers\n");
        println!("| unwinder | {} |", depths.iter().map(usize::to_string).collect::<Vec<_>>().join(" | "));
        println!("|---|{}", "---|".repeat(depths.len()));
        let is_walk = title.ends_with("uu_walk");
        for (mode, name) in MODES {
            row(&name.replace("uu_capture", if is_walk { "uu_walk" } else { "uu_capture" }), depths, |depth| {
                let peer = || {
                    if is_walk {
                        peers::walk_in(mode, library)
                    } else {
                        peers::capture_in(mode, library, what.is_through())
                    }
                };
                what.ratio(depth, rounds, &peer)
            });
        }
        let others: [(&str, Make); 2] = [
            ("libunwind (nongnu) unw_backtrace", peers::libunwind),
            ("libgcc _Unwind_Backtrace", || Box::new(peers::Libgcc)),
        ];
        if title == THOUSANDS {
            let least: Make = || Box::new(least::Unwinding::<true>::new());
            row(least().name(), depths, |depth| what.ratio(depth, rounds, &least));
        }
        for (name, peer) in others.into_iter().filter(|_| !is_walk) {
            // They have no entrance for a ucontext.
            if title.ends_with("ucontext") {
                continue;
            }
            row(name, depths, |depth| what.ratio(depth, rounds, &peer));
        }
    }
}

fn row(name: &str, depths: &[usize], ratio: impl Fn(usize) -> f64) {
    let ratios: Vec<String> =
        depths.iter().map(|depth| in_child(|| ratio(*depth))).map(|ratio| format!("{ratio:.2}")).collect();
    println!("| {name} | {} |", ratios.join(" | "));
}

impl What {
    fn is_through(&self) -> bool {
        matches!(self, What::Rounds { through: true, .. })
    }

    /// The median of the ratios within a round; NaN if a stack was not the chain.
    fn ratio(&self, depth: usize, rounds: usize, peer: &dyn Fn() -> Box<dyn Peer>) -> f64 {
        let mut both = vec![peers::floor(), peer()];
        let measured = match self {
            What::Rounds { chains, time, .. } => measure(&mut both, &chains(depth), rounds, *time),
            What::New => never_seen(&mut both, &Paths::disjoint(depth)),
        };
        let [floor, other] = &measured[..] else { return f64::NAN };
        let ratios = |other: &Measured| other.nanoseconds.iter().zip(&floor.nanoseconds).map(|(a, b)| a / b).collect();
        if other.correct {
            median(ratios(other))
        } else {
            f64::NAN
        }
    }
}

/// The result of a function in a child process, which calls nothing of the parent's.
fn in_child(function: impl Fn() -> f64) -> f64 {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; the child of this process, which has one thread, ends here.
    let (child, read, write) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0, "pipe");
        (libc::fork(), OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    if child == 0 {
        let result = function();
        std::fs::File::from(write).write_all(&result.to_le_bytes()).expect("the parent reads");
        // SAFETY: ends the child, without what the parent registered.
        unsafe { libc::_exit(0) };
    }
    drop(write);
    let mut bytes = [0; 8];
    let sent = std::fs::File::from(read).read_exact(&mut bytes);
    // SAFETY: the child from above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    sent.map_or(f64::NAN, |()| f64::from_le_bytes(bytes))
}
