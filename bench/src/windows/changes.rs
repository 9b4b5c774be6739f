//! What a change costs among 100,000 windows.

use crate::libgcc::Registered;
use crate::lookups::{filled, slots};
use crate::{each, median, BASE, LEN, STRIDE};
use uunwind_core::registry::window::{Kind, Window};

const COUNT: u64 = 100_000;
const CHANGES: usize = 4096;
const BATCH: usize = 64;

/// Prints the table.
pub fn print(rounds: usize) {
    let slots = slots();
    let registry = filled(COUNT, &slots, false);
    // Every other place of a third of the windows is free.
    for i in (0..COUNT).step_by(3) {
        registry.unlink(BASE + i * STRIDE, &slots).expect("registered");
    }
    let place = |i: usize| BASE + (i as u64 * 7919 * 3) % COUNT / 3 * 3 * STRIDE;
    let mut theirs: Vec<Registered> = (0..COUNT).rev().map(|i| Registered::new(BASE + i * STRIDE, LEN)).collect();
    assert!(crate::libgcc::finds(BASE));
    let (mut register, mut unlink, mut wait, mut batch) = (vec![], vec![], vec![], vec![]);
    let (mut their_register, mut their_lookup) = (vec![], vec![]);
    for _ in 0..rounds {
        register.push(each(CHANGES, |i| {
            registry.register(Window::new(place(i), place(i) + LEN, Kind::FramePointer), &slots).expect("free");
        }));
        let mut tickets = Vec::with_capacity(CHANGES);
        unlink.push(each(CHANGES, |i| tickets.push(registry.unlink(place(i), &slots).expect("registered"))));
        wait.push(each(CHANGES, |i| registry.synchronize(tickets[i], 0, &slots).expect("no walk runs")));
        // One wait serves all tickets before it.
        batch.push(
            each(CHANGES / BATCH, |i| {
                registry.synchronize(tickets[(i + 1) * BATCH - 1], 0, &slots).expect("no walk runs");
            }) / BATCH as f64,
        );
        let mut more = Vec::new();
        their_register.push(each(16, |i| more.push(Registered::new(BASE + (COUNT + i as u64) * STRIDE, LEN))));
        their_lookup.push(each(1, |_| assert!(crate::libgcc::finds(BASE + (COUNT + 3) * STRIDE))));
        more.reverse();
        theirs.append(&mut more);
    }
    println!("\n### One change among {COUNT} windows, ns (median of {rounds} rounds)\n");
    println!("| | ns |\n|---|---|");
    println!("| register | {:.0} |\n| unlink | {:.0} |", median(register), median(unlink));
    println!("| synchronize, no walk running | {:.0} |", median(wait));
    println!("| synchronize, its share where one call serves {BATCH} tickets | {:.1} |", median(batch));
    println!("| libgcc (this system's): register | {:.0} |", median(their_register));
    println!("| libgcc: the lookup after 16 registrations, which sorts them in | {:.0} |", median(their_lookup));
    std::mem::forget(theirs);
}
