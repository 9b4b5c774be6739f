//! Captures of two threads at once, beside those of one: `uunwind-bench threads LIBRARY [ROUNDS]`.
//!
//! Each thread has a CPU of its own, and captures the same 2,000 chains. The scaling is twice the time of a capture
//! alone, divided by its time beside another thread's: 2 at best. What it falls short of 2 for the floor is the
//! machine's share, so the figure is the quotient of the two scalings of one round.

use crate::chains::{Flavour, Paths};
use crate::peers::{self, Peer};
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
    let ours = || peers::prepared(libuunwind);
    let (mut by_floor, mut by_us, mut quotients) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + 1 {
        let scaling = |make: &(dyn Fn() -> Box<dyn Peer> + Sync)| {
            2.0 * time(&paths, &cpus[..1], make) / time(&paths, &cpus[..2], make)
        };
        let (floor, ours) = (scaling(&floor), scaling(&ours));
        // The first time, addresses are new.
        if round > 0 {
            by_floor.push(floor);
            by_us.push(ours);
            quotients.push(ours / floor);
        }
    }
    println!("\n### Two threads, 2,000 distinct chains of depth {DEPTH}\n");
    println!("| unwinder | scaling | to the floor's |\n|---|---|---|");
    println!("| frame pointers (floor) | {:.2} | 1.00 |", median(by_floor));
    println!("| uu_capture | {:.2} | {:.2} |", median(by_us), median(quotients));
}

/// Nanoseconds of one capture while each of these CPUs captures: the mean of the threads' medians.
fn time(paths: &Paths, cpus: &[usize], make: &(dyn Fn() -> Box<dyn Peer> + Sync)) -> f64 {
    let (begin, measuring) = (Barrier::new(cpus.len()), AtomicUsize::new(cpus.len()));
    let one = |cpu: usize| {
        peers::bind(cpu);
        let mut peer = make();
        let flavour: Flavour = peer.flavour();
        paths.time(flavour, &mut *peer);
        begin.wait();
        let measured = median((0..PASSES).map(|_| paths.time(flavour, &mut *peer)).collect());
        measuring.fetch_sub(1, Ordering::Relaxed);
        // So that the other one is not alone before it has measured.
        while measuring.load(Ordering::Relaxed) > 0 {
            paths.time(flavour, &mut *peer);
        }
        measured
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(|| one(*cpu))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that measures")).collect()
    });
    times.iter().sum::<f64>() / times.len() as f64
}
