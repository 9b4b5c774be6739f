//! Windows in simulated memory: a tree of one node, and cells with as much of a window as is read.

use super::*;
use std::cell::RefCell;
use uunwind_core::registry::outside::{Shape, MAGIC, VERSION};
use uunwind_core::registry::window::NO_UNWIND;

/// Process addresses: of the description, the word with the root's address, the root, and the first cell.
const BASE: u64 = 0x1000;
const ROOT_AT: u64 = BASE + 0x100;
const NODE: u64 = BASE + 0x200;
const CELLS: u64 = BASE + 0x400;
const CELL: u64 = 0x80;
/// Of tables of functions.
const TABLE: u64 = BASE + 0x1000;
/// Most windows.
const ENTRIES: u64 = 4;

/// The fields of a cell, all of which are words here.
const FIELDS: [&str; 11] = [
    "generation",
    "unlinked",
    "start",
    "end",
    "kind",
    "flags",
    "unwind",
    "unwind_len",
    "functions",
    "capacity",
    "published",
];

struct World(RefCell<Vec<u8>>);

impl Memory for World {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(address.checked_sub(BASE)?).ok()?;
        Some(self.0.borrow().get(from..from.checked_add(len)?)?.to_vec())
    }
}

impl World {
    fn new() -> World {
        let world = World(RefCell::new(vec![0; 0x2000]));
        let field = |name: &str| FIELDS.iter().position(|field| *field == name).expect("a field") as u32 * 8;
        let shape = Shape {
            node_size: 0x100,
            node_keys: 0,
            node_below: 8 * ENTRIES as u32,
            node_entries: ENTRIES as u32,
            node_change: 0x80,
            node_len: 0x88,
            node_height: 0x8c,
            cell_size: CELL as u32,
            cell_generation: field("generation"),
            cell_unlinked: field("unlinked"),
            window_start: field("start"),
            window_end: field("end"),
            window_kind: field("kind"),
            window_flags: field("flags"),
            window_unwind: field("unwind"),
            window_unwind_len: field("unwind_len"),
            window_functions: field("functions"),
            window_capacity: field("capacity"),
            window_published: field("published"),
        };
        // SAFETY: fields of 4 bytes each, without gaps.
        let fields: [u8; size_of::<Shape>()] = unsafe { std::mem::transmute(shape) };
        world.put(BASE, &MAGIC);
        world.put(BASE + 8, &VERSION.to_le_bytes());
        world.put(BASE + 12, &(24 + fields.len() as u32).to_le_bytes());
        world.put(BASE + 16, &ROOT_AT.to_le_bytes());
        world.put(BASE + 24, &fields);
        world
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let from = (at - BASE) as usize;
        self.0.borrow_mut()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// These are the windows from now on, with this number of changes so far.
    fn hold(&self, change: u64, windows: &[Window]) {
        let mut node = vec![0; 0x100];
        for (index, window) in windows.iter().enumerate() {
            let cell = CELLS + index as u64 * CELL;
            let words = [
                window.generation,
                0,
                window.start,
                window.end,
                window.kind.number().into(),
                window.flags.into(),
                window.unwind,
                window.unwind_len,
                window.functions,
                window.capacity,
                window.published,
            ];
            self.put(cell, words.map(u64::to_le_bytes).as_flattened());
            node[8 * index..][..8].copy_from_slice(&window.start.to_le_bytes());
            node[8 * (index + ENTRIES as usize)..][..8].copy_from_slice(&cell.to_le_bytes());
        }
        node[0x80..0x88].copy_from_slice(&change.to_le_bytes());
        node[0x88] = windows.len() as u8;
        self.put(NODE, &node);
        self.put(ROOT_AT, &NODE.to_le_bytes());
    }

    /// A table of functions: start, length, and distance of the FDE.
    fn table(&self, functions: &[[u32; 3]]) {
        for (index, [start, len, unwind]) in functions.iter().enumerate() {
            self.put(TABLE + 24 * index as u64, [*start, *len, *unwind].map(u32::to_le_bytes).as_flattened());
        }
    }
}

fn window(generation: u64, start: u64, kind: Kind) -> Window {
    Window { generation, ..Window::new(start, start + 0x1000, kind) }
}

/// What a look finds: the addresses of functions that come, and the numbers of those that go.
fn look(windows: &mut CodeWindows, world: &World) -> (Vec<(u32, Span)>, Vec<u32>) {
    let (mut comes, mut goes) = (Vec::new(), Vec::new());
    for change in windows.look(world, || 0) {
        match change {
            Change::Comes(number, span, _) => comes.push((number, span)),
            Change::Goes(number) => goes.push(number),
        }
    }
    goes.sort_unstable();
    (comes, goes)
}

#[test]
fn windows_of_code_come_and_go_and_others_are_left_alone() {
    let (world, mut windows) = (World::new(), CodeWindows::new(BASE));
    assert!(look(&mut windows, &world).0.is_empty(), "there are none");
    let others = [Kind::FramePointer, Kind::Opaque].map(|kind| window(1, 0x10_0000, kind));
    for (change, other) in (1..).zip(others) {
        world.hold(change, &[other, window(change + 10, 0x20_0000, Kind::Code)]);
        let (comes, _) = look(&mut windows, &world);
        assert_eq!(comes.iter().map(|(_, span)| *span).collect::<Vec<_>>(), [Span::new(0x20_0000, 0x20_1000)]);
        assert!(look(&mut windows, &world) == (Vec::new(), Vec::new()), "nothing has changed");
    }
    // Its place is another window's.
    world.hold(3, &[others[1], window(20, 0x20_0000, Kind::Code)]);
    let (comes, goes) = look(&mut windows, &world);
    assert_eq!((comes.len(), goes.len()), (1, 1));
    assert_ne!(comes[0].0, goes[0]);
    world.hold(4, &[others[1]]);
    assert_eq!(look(&mut windows, &world), (Vec::new(), vec![comes[0].0]));
    assert_eq!(windows.functions, 0);
}

#[test]
fn functions_without_unwind_data_are_found_in_tables_as_they_grow() {
    let (world, mut windows) = (World::new(), CodeWindows::new(BASE));
    let published = TABLE + 0x800;
    world.put(published, &1u64.to_le_bytes());
    world.table(&[[0, 16, NO_UNWIND], [32, 16, 8], [64, 16, NO_UNWIND]]);
    let table = Window { functions: TABLE, capacity: 3, published, ..window(1, 0x20_0000, Kind::EhFrame) };
    world.hold(1, &[table]);
    let (comes, _) = look(&mut windows, &world);
    assert_eq!(comes, [(1, Span::sized(0x20_0000, 16))]);
    world.put(published, &3u64.to_le_bytes());
    assert_eq!(look(&mut windows, &world), (vec![(2, Span::sized(0x20_0040, 16))], Vec::new()), "one has an FDE");
    // A tombstone.
    world.table(&[[0, 0, NO_UNWIND]]);
    assert_eq!(look(&mut windows, &world), (Vec::new(), vec![1]));
    // A number that the table does not have.
    world.put(published, &u64::MAX.to_le_bytes());
    assert_eq!(look(&mut windows, &world), (Vec::new(), Vec::new()));
}

#[test]
fn what_makes_no_sense_ends_a_look() {
    let (world, mut windows) = (World::new(), CodeWindows::new(BASE));
    // A table that cannot be read, and one that leads out of its window.
    let unreadable = Window { functions: 1 << 40, capacity: u64::MAX, ..window(1, 0x10_0000, Kind::Code) };
    world.table(&[[0xff8, 16, NO_UNWIND], [u32::MAX, u32::MAX, NO_UNWIND]]);
    let beyond = Window { functions: TABLE, capacity: 2, ..window(2, 0x20_0000, Kind::Code) };
    world.hold(1, &[unreadable, beyond]);
    assert!(look(&mut windows, &world).0.is_empty());
    // A node that is its own child.
    let mut node = vec![0; 0x100];
    node[8 * ENTRIES as usize..][..8].copy_from_slice(&NODE.to_le_bytes());
    (node[0x80], node[0x88], node[0x8c]) = (2, 1, 1);
    world.put(NODE, &node);
    assert!(look(&mut windows, &world).0.is_empty());
}
