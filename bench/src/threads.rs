//! Captures of two threads at once, beside those of one: `uunwind-bench threads LIBRARY [ROUNDS]`.
//!
//! Each thread has a CPU of its own, and captures the same 2,000 chains. The scaling is the sum of the threads' times
//! of a capture alone, divided by its time beside the other thread's: 2 at best. What it falls short of 2 for the floor
//! is the machine's share, so the figure is the quotient of the two scalings of one round.

use crate::chains::{Flavour, Paths};
use crate::peers::{self, Mode, Peer};
use crate::table::median;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

const DEPTH: usize = 30;
const CHAINS: usize = 2000;
/// Number of passes over the chains whose median is one measurement.
const PASSES: usize = 7;

/// Prints the table.
pub fn run(libuunwind: &str, rounds: usize) {
    let cpus = peers::cpus();
    assert!(cpus.len() >= 2, "two threads need two CPUs, and this process may use {}", cpus.len());
    let paths = Paths::new(DEPTH, CHAINS);
    let floor = || peers::floor();
    println!("\n### Two threads, 2,000 distinct chains of depth {DEPTH}\n");
    println!("| unwinder | scaling | the floor's | to the floor's |\n|---|---|---|---|");
    // In this order: what a program has called cannot be taken back.
    for (mode, name) in [(Mode::Nothing, "uu_capture, nothing called"), (Mode::Prepared, "uu_capture, prepared")] {
        let ours = || peers::capture_in(mode, libuunwind, false);
        let [by_us, by_floor, quotient] = medians(&paths, &cpus[..2], rounds, &floor, &ours);
        println!("| {name} | {by_us:.2} | {by_floor:.2} | {quotient:.2} |");
    }
}

type Make<'m> = dyn Fn() -> Box<dyn Peer> + Sync + 'm;

/// Medians over the rounds: the scaling of ours, of the floor, and the quotient of both within a round.
fn medians(paths: &Paths, cpus: &[usize], rounds: usize, floor: &Make<'_>, ours: &Make<'_>) -> [f64; 3] {
    let (mut by_floor, mut by_us, mut quotients) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 1 {
        let (floor, ours) = (scaling(paths, cpus, floor), scaling(paths, cpus, ours));
        // The first time, addresses are new.
        if round > 0 {
            by_floor.push(floor);
            by_us.push(ours);
            quotients.push(ours / floor);
        }
    }
    [median(by_us), median(by_floor), median(quotients)]
}

/// The scaling of two threads, each on a CPU of its own. The same two threads measure alone, in turn, and beside each
/// other: another thread has its stack and its slot at other places, which can cost more than the other CPU's work.
fn scaling(paths: &Paths, cpus: &[usize], make: &Make<'_>) -> f64 {
    let (phase, measuring) = (Barrier::new(cpus.len()), AtomicUsize::new(cpus.len()));
    let one = |own: usize, cpu: usize| {
        peers::bind(cpu);
        let mut peer = make();
        let flavour: Flavour = peer.flavour();
        paths.time(flavour, &mut *peer);
        let mut alone = 0.0;
        for turn in 0..cpus.len() {
            phase.wait();
            if turn == own {
                alone = measure(paths, flavour, &mut *peer);
            }
        }
        phase.wait();
        let beside = measure(paths, flavour, &mut *peer);
        measuring.fetch_sub(1, Ordering::Relaxed);
        // So that the other one is not alone before it has measured.
        while measuring.load(Ordering::Relaxed) > 0 {
            paths.time(flavour, &mut *peer);
        }
        alone / beside
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = cpus.iter().enumerate().map(|(own, cpu)| scope.spawn(move || one(own, *cpu))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that measures")).sum()
    })
}

/// Nanoseconds of one capture, now.
fn measure(paths: &Paths, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
    median((0..PASSES).map(|_| paths.time(flavour, peer)).collect())
}
