//! Lists that the test writes, registered and looked up.

use super::*;
use uunwind_core::registry::window::NO_UNWIND;

/// A CIE and FDEs as an assembler would write them; absolute pointers.
struct List {
    bytes: Vec<u8>,
}

const OPS: &[u8] = &[0x0c, 7, 8, 0x90, 1];

impl List {
    /// `ops`: the CIE's instructions.
    fn new(ops: &[u8]) -> List {
        let mut list = List { bytes: Vec::with_capacity(4096) };
        list.cie(ops);
        list
    }

    fn entry(&mut self, id: u32, body: &[u8]) -> usize {
        let at = self.bytes.len();
        let padded = (body.len() + 4).next_multiple_of(8) + 4;
        self.bytes.extend((padded as u32).to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(at + 4 + padded, 0);
        assert!(self.bytes.len() <= self.bytes.capacity(), "it must not move");
        at
    }

    fn cie(&mut self, ops: &[u8]) -> usize {
        // Version 1, no augmentation, code 1, data -8, return address 16.
        let body = [&[1, 0, 1, 0x78, 16], ops].concat();
        self.entry(0, &body)
    }

    fn fde(&mut self, cie: usize, start: u64, len: u64) -> usize {
        let distance = (self.bytes.len() + 4 - cie) as u32;
        let body = [start.to_le_bytes(), len.to_le_bytes()].concat();
        self.entry(distance, &body)
    }

    fn end(&mut self) -> u64 {
        self.bytes.extend([0; 4]);
        self.bytes.as_ptr() as u64
    }
}

/// Kind, range and function of the window at `pc`.
fn at(pc: u64) -> Option<(Kind, u64, u64, Option<Function>)> {
    let Ok(walking) = SLOTS.enter(core::ptr::from_ref(&pc) as u64, REGISTRY.epoch()) else { panic!("no slot") };
    // SAFETY: inside a walk.
    let window = unsafe { REGISTRY.windows() }.find(pc).map(|held| *held.window());
    let mut reader = Reader::probed();
    let function = window.and_then(|window| uunwind_core::registry::functions::find(&window, pc, &mut reader));
    walking.leave();
    window.map(|window| (window.kind, window.start, window.end, function))
}

fn cleared(pcs: &[u64]) -> bool {
    pcs.iter().all(|pc| at(*pc).is_none())
}

#[test]
fn a_list_in_any_order_becomes_runs_of_functions() {
    let mut list = List::new(OPS);
    let far = list.fde(0, 0x1_0000_9000, 0x20);
    let second = list.fde(0, 0x1_0000_1030, 0x20);
    let first = list.fde(0, 0x1_0000_1000, 0x28);
    let silent = list.cie(&[]);
    list.fde(silent, 0x1_0000_1060, 0x20);
    list.fde(0, 0, 0x20);
    let begin = list.end();
    // SAFETY: the list stays as it is.
    assert_eq!(unsafe { add(begin, 0) }, 0);
    for (pc, start, end, of, fde) in [
        (0x1_0000_1000, 0x1_0000_1000, 0x1_0000_1050, 0, first),
        (0x1_0000_1027, 0x1_0000_1000, 0x1_0000_1050, 0, first),
        (0x1_0000_1030, 0x1_0000_1000, 0x1_0000_1050, 0x30, second),
        (0x1_0000_901f, 0x1_0000_9000, 0x1_0000_9020, 0, far),
    ] {
        let (kind, from, to, function) = at(pc).expect("a window");
        assert_eq!((kind, from, to), (Kind::EhFrame, start, end), "{pc:#x}");
        let function = function.expect("a function");
        assert_eq!((function.start, function.unwind as usize), (of, fde), "{pc:#x}");
    }
    let (kind, _, _, function) = at(0x1_0000_1028).expect("padding lies in the window");
    assert_eq!((kind, function), (Kind::EhFrame, None));
    let (kind, from, to, _) = at(0x1_0000_1060).expect("a window");
    assert_eq!((kind, from, to), (Kind::Opaque, 0x1_0000_1060, 0x1_0000_1080), "its FDE has no CFA");
    // SAFETY: not a handler.
    unsafe { remove(begin) };
    assert!(cleared(&[0x1_0000_1000, 0x1_0000_1060, 0x1_0000_9000]));
    // SAFETY: as above: nothing is registered there, and nothing happens.
    unsafe { remove(begin) };
}

#[test]
fn one_fde_is_one_function_whatever_follows_it() {
    let mut list = List::new(OPS);
    let fde = list.fde(0, 0x2_0000_0000, 0x10);
    list.fde(0, 0x2_0000_0010, 0x10);
    list.end();
    let begin = list.bytes.as_ptr() as u64;
    // SAFETY: the list stays as it is; not a handler.
    unsafe {
        assert_eq!(add(begin, 1), 0, "a CIE is none");
        assert!(cleared(&[0x2_0000_0000]));
        assert_eq!(add(begin + fde as u64, 1), 0);
        assert_eq!(at(0x2_0000_000f).map(|w| w.2), Some(0x2_0000_0010));
        assert!(cleared(&[0x2_0000_0010]));
        remove(begin + fde as u64);
    }
    assert!(cleared(&[0x2_0000_0000]));
}

#[test]
fn tables_overlaps_and_damage() {
    let (mut one, mut two) = (List::new(OPS), List::new(OPS));
    one.fde(0, 0x3_0000_0000, 0x10);
    two.fde(0, 0x3_0000_1000, 0x10);
    let table = [one.end(), two.end(), 0];
    let begin = table.as_ptr() as u64;
    let mut again = List::new(OPS);
    again.fde(0, 0x3_0000_1008, 0x10);
    again.fde(0, 0x3_0000_2000, 0x10);
    // After these, a length that leads nowhere.
    let broken = again.bytes.len();
    again.bytes.extend(0x7fff_0000u32.to_le_bytes());
    again.bytes.extend([1; 8]);
    // SAFETY: the lists stay as they are; not a handler.
    unsafe {
        assert_eq!(add(begin, 2), 0);
        assert!(at(0x3_0000_0000).is_some() && at(0x3_0000_1000).is_some());
        assert_eq!(add(again.bytes.as_ptr() as u64, 0), 2, "one overlaps; what follows {broken} is damaged");
        assert!(at(0x3_0000_2000).is_some(), "what stood before the damage is good");
        assert_eq!(at(0x3_0000_1009).map(|w| w.1), Some(0x3_0000_1000));
        remove(again.bytes.as_ptr() as u64);
        remove(begin);
        assert_eq!(add(8, 0), 1, "unreadable");
        assert_eq!(add(begin, 9), 1, "no such shape");
    }
    assert!(cleared(&[0x3_0000_0000, 0x3_0000_1000, 0x3_0000_2000]));
    assert_eq!(NO_UNWIND, u32::MAX);
}

/// Far more functions than fit into small pieces of memory, in several threads at once.
#[test]
fn threads_register_and_deregister() {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let base = 0x4_0000_0000 + thread * 0x1000_0000;
                for round in 0..200u64 {
                    let mut list = List { bytes: Vec::with_capacity(1 << 20) };
                    list.cie(OPS);
                    let count = if round % 50 == 0 { 5000 } else { 3 };
                    for i in (0..count).rev() {
                        list.fde(0, base + i * 128, 64);
                    }
                    let begin = list.end();
                    // SAFETY: the list stays as it is; not a handler.
                    unsafe {
                        assert_eq!(add(begin, 0), 0);
                        assert!(at(base + 128).is_some_and(|w| w.3.is_some()));
                        remove(begin);
                    }
                    assert!(cleared(&[base, base + 256]));
                }
            });
        }
    });
}
