//! Who covers a pc: the registry beside libgcc.

use crate::libgcc::{finds, Registered};
use crate::{each, median, BASE, LEN, STRIDE};
use std::hint::black_box;
use uunwind_core::registry::window::{Kind, Window};
use uunwind_core::registry::Registry;
use uunwind_core::slots::Slots;
use uunwind_random::Random;

/// A registry with windows, in the order in which a JIT would register them, or in none.
pub fn filled(count: u64, slots: &Slots, in_order: bool) -> Box<Registry> {
    let registry = Box::new(Registry::new());
    let mut order: Vec<u64> = (0..count).collect();
    if !in_order {
        let mut random = Random::new(7);
        for i in (1..order.len()).rev() {
            order.swap(i, (random.number() % (i as u64 + 1)) as usize);
        }
    }
    for i in order {
        let start = BASE + i * STRIDE;
        registry.register(Window::new(start, start + LEN, Kind::FramePointer), slots).expect("no overlap");
    }
    registry
}

pub fn slots() -> Box<Slots> {
    // SAFETY: all-zero is the free pool.
    unsafe { Box::<Slots>::new_zeroed().assume_init() }
}

/// Prints the table.
pub fn print(rounds: usize) {
    println!("\n### Looking a pc up, ns (median of {rounds} rounds)\n");
    println!("| windows | any of all, registered in order | ... in no order | 64 pcs again and again | libgcc (this system's), any of all |");
    println!("|---|---|---|---|---|");
    for count in [10u64, 1000, 10_000, 100_000] {
        let slots = slots();
        let (ordered, mixed) = (filled(count, &slots, true), filled(count, &slots, false));
        // libgcc looks at objects in descending order; registering so, its list is made in linear time.
        let theirs: Vec<Registered> = (0..count).rev().map(|i| Registered::new(BASE + i * STRIDE, LEN)).collect();
        let mut random = Random::new(99);
        let pcs: Vec<u64> =
            (0..1 << 16).map(|_| BASE + random.number() % count * STRIDE + random.number() % LEN).collect();
        let ask = |registry: &Registry, pcs: &[u64]| {
            each(pcs.len().max(1 << 16), |i| {
                let pc = pcs[i % pcs.len()];
                // SAFETY: no thread changes this registry meanwhile.
                let held = unsafe { registry.windows() }.find(black_box(pc)).expect("covered");
                black_box(held.window().generation);
            })
        };
        let few = if count > 10_000 { 64 } else { 2048 };
        assert!(pcs[..few].iter().all(|pc| finds(*pc)), "libgcc does not find what was registered");
        let mut columns = [vec![], vec![], vec![], vec![]];
        for _ in 0..rounds {
            columns[0].push(ask(&ordered, &pcs));
            columns[1].push(ask(&mixed, &pcs));
            columns[2].push(ask(&mixed, &pcs[..64]));
            columns[3].push(each(few, |i| assert!(finds(black_box(pcs[i])))));
        }
        let cells = columns.map(|column| format!("{:.0}", median(column)));
        println!("| {count} | {} |", cells.join(" | "));
        // In the order in which libgcc finds them at once.
        theirs.into_iter().for_each(drop);
    }
}
