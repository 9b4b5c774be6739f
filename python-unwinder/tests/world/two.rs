//! A process with two activations, and what a walk shows of it.

use super::host::{Native, Shown, Walk};
use super::python::{Process, Version, GENERATOR, STACK, THREAD};

/// CFAs of the two activations.
pub const OUTER: u64 = STACK - 0x1000;
pub const INNER: u64 = STACK - 0x3000;
/// Bytes of an activation's native frame.
pub const SIZE: u64 = 0x200;

/// main -> f in an outer activation, g (a generator) -> h in an inner one.
pub fn two_activations(version: &'static Version) -> Process {
    let mut p = Process::new(version);
    let [main, f, g, h] = ["<module>", "f", "g", "C.h"].map(|name| p.code(name, "/a.py", 7, 100));
    p.activate(OUTER);
    p.call(main, 20, THREAD);
    p.call(f, 40, THREAD);
    p.activate(INNER);
    p.call(g, 60, GENERATOR);
    p.call(h, 80, THREAD);
    p
}

pub fn shown(answer: u32, frames: &[(&str, u64)]) -> Shown {
    Shown { answer, frames: frames.iter().map(|(name, at)| ((*name).into(), *at)).collect() }
}

pub fn show(p: &Process, natives: &[Native]) -> Vec<Shown> {
    let natives: Vec<_> = natives.iter().map(|native| (*native, p.version)).collect();
    Walk::new(&p.memory).show(&natives)
}
