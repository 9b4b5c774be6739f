//! Cost of one capture, beside other unwinders, in one process.
//!
//! `uunwind-bench LIBRARY [ROUNDS]`: chains of generated functions, 10 to 300 deep; addresses never seen before; the
//! same stack again and again, and with its top changed, as calls, of which the processor works on several at once, and
//! singly in a signal handler; the same chain elsewhere on the stack; two thousand distinct chains over 8,000 return
//! addresses, as calls and in a signal handler; and the latter spread over 50 libraries, among 500. A signal takes
//! microseconds, so that what a capture needs of an address may have left the caches before the address is met again;
//! fifty distinct chains many times in a row, as calls and in a handler, separate that from the cost of the handler
//! itself. In a handler, this project captures from the handler's ucontext, and in a line of its own through the signal
//! frame, as the others do. Every unwinder captures the same number of frames, those of the chain, and its result is
//! compared with the chain that the frame-pointer walk or libgcc saw. The floor, a walk by frame pointers, runs on the
//! same functions compiled with frame pointers, and so does a line of its own of this project's. All take turns inside
//! each round; a ratio is that of one round, and the median over the rounds is printed. With 0 rounds: addresses never
//! seen before, and nothing else. Last come uu_walk, and uu_stack_id after a capture, of the same chains. The tables of
//! the same stack and of two thousand chains have lines that say what can be reached (`Least`, `least.rs`).
//!
//! `uunwind-bench LIBRARY ROUNDS WORDS`: the tables whose titles contain these words, of the floor,
//! `uu_capture` and what can be reached only, as minima: to compare two builds of the library, whose processes take
//! turns.
//!
//! `uunwind-bench unprepared LIBRARY`: addresses never seen before in a program that called neither uu_setup() nor
//! uu_handle_faults(), beside libgcc.
//!
//! `uunwind-bench modes LIBRARY [ROUNDS [WORDS]]`: captures in a program that called nothing, beside those in one that
//! called uu_handle_faults(), or uu_setup() as well; with WORDS, the tables whose titles contain them.
//!
//! `uunwind-bench ids LIBRARY [ROUNDS]`: ids of known stacks, beside another table.
//!
//! `uunwind-bench threads LIBRARY [ROUNDS]`: captures of two threads at once.
//!
//! `uunwind-bench triggers LIBRARY [ROUNDS]`: deferred requests.

mod build;
mod chains;
mod ids;
mod least;
mod modes;
mod peers;
mod spread;
mod table;
mod threads;
mod triggers;

use chains::{Flavour, Paths};
use peers::Peer;

const DEPTHS: [usize; 4] = [10, 30, 100, 300];
/// Number of captures in a row where chains are few, so that what they need is in the caches.
const PASSES: usize = 10;
/// Titles of tables with a line that says what can be reached.
const SAME: &str = "the same stack again";
const MANY: &str = "2,000 distinct chains, their addresses seen before";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let libuunwind = arguments.next().expect(
        "usage: uunwind-bench LIBRARY [ROUNDS], uunwind-bench unprepared LIBRARY, or uunwind-bench build [FILE...]",
    );
    if libuunwind == "build" {
        return build::run(arguments.collect());
    }
    if libuunwind == "unprepared" {
        return unprepared(&arguments.next().expect("usage: uunwind-bench unprepared LIBRARY"));
    }
    if libuunwind == "modes" {
        let library = arguments.next().expect("usage: uunwind-bench modes LIBRARY [ROUNDS]");
        chains::settle();
        let rounds = arguments.next().map_or(21, |n| n.parse().expect("ROUNDS is a number"));
        return modes::run(&library, rounds, &arguments.next().unwrap_or_default());
    }
    if libuunwind == "ids" {
        let library = arguments.next().expect("usage: uunwind-bench ids LIBRARY [ROUNDS]");
        chains::settle();
        return ids::run(&library, arguments.next().map_or(21, |n| n.parse().expect("ROUNDS is a number")));
    }
    if libuunwind == "threads" {
        let library = arguments.next().expect("usage: uunwind-bench threads LIBRARY [ROUNDS]");
        return threads::run(&library, arguments.next().map_or(21, |n| n.parse().expect("ROUNDS is a number")));
    }
    if libuunwind == "triggers" {
        let library = arguments.next().expect("usage: uunwind-bench triggers LIBRARY [ROUNDS]");
        return triggers::run(&library, arguments.next().map_or(21, |n| n.parse().expect("ROUNDS is a number")));
    }
    let rounds = arguments.next().map_or(21, |n| n.parse().expect("ROUNDS is a number"));
    let only = arguments.next();
    let is_wanted = |title: &str| only.as_ref().is_none_or(|words| title.contains(words.as_str()));
    let kind = if only.is_some() { table::Kind::Minima } else { table::Kind::Medians };
    chains::settle();
    let mut peers = peers::all(&libuunwind);
    if only.is_some() {
        peers.truncate(2);
    }
    // First of all: every address is met for the first time.
    let mut table = table::Table::new("addresses never seen before", &DEPTHS[1..2]);
    table.add(never_seen(&mut peers, &Paths::disjoint(DEPTHS[1])));
    if is_wanted("addresses never seen before") {
        table.print();
    }
    if rounds == 0 {
        return;
    }
    type Time = fn(&Paths, Flavour, &mut dyn Peer, &[Vec<u64>]) -> Option<f64>;
    let called: Time = |paths, flavour, peer, _| Some(paths.time(flavour, peer));
    let interrupted: Time = |paths, flavour, peer, truth| paths.time_in_handler(flavour, peer, truth, false);
    type Chains = fn(usize) -> Paths;
    let (one, many, few): (Chains, Chains, Chains) =
        (|depth| Paths::new(depth, 1), |depth| Paths::new(depth, 2000), |depth| Paths::new(depth, 50));
    let again: Chains = |depth| Paths::again(depth, 400);
    let cases: [(&str, Chains, Time, bool); 9] = [
        (SAME, one, called, false),
        ("the same stack again, in a signal handler", again, interrupted, true),
        ("its top changed", one, |paths, flavour, peer, _| Some(paths.time_top_changed(flavour, peer)), false),
        (
            "its top changed, in a signal handler",
            again,
            |paths, flavour, peer, truth| paths.time_in_handler(flavour, peer, truth, true),
            true,
        ),
        (
            "the same chain, elsewhere on the stack",
            one,
            |paths, flavour, peer, _| Some(paths.time_moved(flavour, peer)),
            false,
        ),
        (MANY, many, called, false),
        ("2,000 distinct chains, in a signal handler", many, interrupted, true),
        (
            "50 distinct chains, many times in a row",
            few,
            |paths, flavour, peer, _| Some(table::median((0..PASSES).map(|_| paths.time(flavour, peer)).collect())),
            false,
        ),
        (
            "50 distinct chains, in a signal handler",
            few,
            |paths, flavour, peer, truth| {
                let once = |_| paths.time_in_handler(flavour, peer, truth, false);
                (0..PASSES).map(once).collect::<Option<Vec<f64>>>().map(table::median)
            },
            true,
        ),
    ];
    for (what, chains, time, in_handler) in cases {
        // What can be reached there.
        let least: Vec<Box<dyn Peer>> = match what {
            _ if !is_wanted(what) => Vec::new(),
            SAME => vec![Box::new(peers::Least::default())],
            MANY => vec![Box::new(least::Unwinding::<false>::new()), Box::new(least::Unwinding::<true>::new())],
            _ => Vec::new(),
        };
        let others = peers.len();
        peers.extend(least);
        if in_handler {
            peers.push(Box::new(peers::Through::open(&libuunwind)));
        }
        if is_wanted(what) {
            let mut table = table::Table::of(kind, what, &DEPTHS);
            for depth in DEPTHS {
                table.add(measure(&mut peers, &chains(depth), rounds, time));
            }
            table.print();
        }
        peers.truncate(others);
    }
    if only.is_some() {
        return;
    }
    spread::print(&mut peers[1], &libuunwind, rounds);
    let mut peers = peers::whole(&libuunwind);
    for (what, chains) in
        [("the same stack again: whole stacks and ids", one), ("2,000 distinct chains: whole stacks and ids", many)]
    {
        let mut table = table::Table::new(what, &DEPTHS);
        for depth in DEPTHS {
            table.add(measure(&mut peers, &chains(depth), rounds, called));
        }
        table.print();
    }
}

/// A program that captures once in a while, and has prepared nothing.
fn unprepared(libuunwind: &str) {
    chains::settle();
    let mut peers = peers::unprepared(libuunwind);
    let mut table = table::Table::new("addresses never seen before, nothing prepared", &DEPTHS[1..2]);
    table.add(never_seen(&mut peers, &Paths::disjoint(DEPTHS[1])));
    table.print();
}

/// What one peer did at one depth.
pub struct Measured {
    /// Its name.
    pub name: &'static str,
    /// Nanoseconds of one capture, in each round.
    pub nanoseconds: Vec<f64>,
    /// Whether all captures gave the chain that they should.
    pub correct: bool,
}

/// One capture of each chain; a "round" of the table is a chain. The peers take turns at each chain, and at every
/// second one in the opposite order: the first one that reads unwind data finds it outside of the processor's caches.
fn never_seen(peers: &mut [Box<dyn Peer>], paths: &Paths) -> Vec<Measured> {
    // So that the unwinders' code is not met for the first time: of other addresses, one chain.
    let other = Paths::again(DEPTHS[1], 20);
    let begin = |peer: &mut Box<dyn Peer>| {
        other.time_each(peer.flavour(), &mut **peer);
        Measured { name: peer.name(), nanoseconds: Vec::new(), correct: true }
    };
    let mut measured: Vec<Measured> = peers.iter_mut().map(begin).collect();
    for chain in 0..paths.count() {
        for turn in 0..peers.len() {
            let first = chain / 2 % peers.len();
            let turn = if chain % 2 == 0 { turn } else { peers.len() - 1 - turn };
            let number = (first + turn) % peers.len();
            let peer = &mut *peers[number];
            measured[number].nanoseconds.push(paths.time_chain(chain, peer.flavour(), peer));
        }
    }
    measured
}

/// One round of a peer over the chains: ns per capture; `None` if one was not the truth, which the last argument is.
type Timing = fn(&Paths, Flavour, &mut dyn Peer, &[Vec<u64>]) -> Option<f64>;

fn measure(peers: &mut [Box<dyn Peer>], paths: &Paths, rounds: usize, time: Timing) -> Vec<Measured> {
    // The truth for each flavour: what libgcc sees, taken once.
    let mut libgcc = peers::Libgcc;
    let truth = |flavour: Flavour, libgcc: &mut peers::Libgcc| paths.record(flavour, libgcc);
    let plain = truth(Flavour::Plain, &mut libgcc);
    let framed = truth(Flavour::Framed, &mut libgcc);
    let mut measured: Vec<Measured> =
        peers.iter().map(|p| Measured { name: p.name(), nanoseconds: Vec::new(), correct: true }).collect();
    for (peer, result) in peers.iter_mut().zip(&mut measured) {
        // Twice: the first time may fill caches, and both must be right.
        for _ in 0..2 {
            let truth = if peer.flavour() == Flavour::Plain { &plain } else { &framed };
            result.correct &= paths.record(peer.flavour(), &mut **peer) == *truth;
        }
    }
    for _ in 0..rounds {
        for (peer, result) in peers.iter_mut().zip(&mut measured) {
            let truth = if peer.flavour() == Flavour::Plain { &plain } else { &framed };
            let time = time(paths, peer.flavour(), &mut **peer, truth);
            result.correct &= time.is_some();
            result.nanoseconds.push(time.unwrap_or(f64::NAN));
        }
    }
    measured
}
