//! Lists in simulated memory, with objects that gcc compiles.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;

#[derive(Default)]
struct World(RefCell<BTreeMap<u64, Vec<u8>>>);

impl World {
    fn put(&self, at: u64, bytes: &[u8]) {
        self.0.borrow_mut().insert(at, bytes.to_vec());
    }

    fn words(&self, at: u64, words: &[u64]) {
        self.put(at, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    }
}

impl Memory for World {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let world = self.0.borrow();
        let (start, bytes) = world.range(..=address).next_back()?;
        let from = usize::try_from(address - start).ok()?;
        Some(bytes.get(from..from.checked_add(len)?)?.to_vec())
    }
}

/// A relocatable object whose .text lies at `text`, as a JIT leaves it in memory.
fn object(name: &str, text: u64) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("uu-gdb-jit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, made) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.o")));
    std::fs::write(&source, format!("int {name}(int x) {{ return x * 3; }}\nint data_{name} = 4;")).expect("a source");
    let done = Command::new("gcc").args(["-O1", "-c", "-o"]).arg(&made).arg(&source).status().expect("gcc runs");
    assert!(done.success());
    let mut image = std::fs::read(&made).expect("the object");
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let (sections, count) = (word(40) as usize, usize::from(image[60]));
    // Executable sections get the address: sh_flags at 8, sh_addr at 16.
    let code: Vec<usize> = (0..count).map(|i| sections + 64 * i).filter(|at| word(at + 8) & 4 != 0).collect();
    code.iter().for_each(|at| image[at + 16..at + 24].copy_from_slice(&text.to_le_bytes()));
    image
}

fn live(table: &Table) -> Vec<(String, u64)> {
    let mut live = Vec::new();
    for event in &table.events {
        let code = &table.codes[event.code as usize];
        let entry = (code.name.to_string(), code.start);
        if event.comes {
            live.push(entry);
        } else {
            live.retain(|e| *e != entry);
        }
    }
    live
}

#[test]
fn objects_come_go_and_are_replaced_at_the_same_place() {
    let (world, mut table, mut list) = (World::default(), Table::default(), Descriptor::new(0x100, 0));
    let (one, two, three) = (object("one", 0x7000), object("two", 0x8000), object("six", 0x7000));
    assert_eq!(one.len(), three.len(), "the same size, so that only the content distinguishes them");
    world.words(0x100, &[1, 0, 0]);
    list.look(&world, &mut table, || 1, false);
    assert!(table.codes.is_empty());

    world.put(0x10000, &one);
    world.words(0x200, &[0, 0, 0x10000, one.len() as u64]);
    world.words(0x100, &[1 | 1 << 32, 0x200, 0x200]);
    list.look(&world, &mut table, || 2, false);
    assert_eq!(live(&table), [("one".to_owned(), 0x7000)]);

    world.put(0x20000, &two);
    world.words(0x300, &[0x200, 0, 0x20000, two.len() as u64]);
    world.words(0x100, &[1 | 1 << 32, 0x300, 0x300]);
    list.look(&world, &mut table, || 3, false);
    assert_eq!(live(&table), [("one".to_owned(), 0x7000), ("two".to_owned(), 0x8000)]);

    world.words(0x300, &[0, 0, 0x20000, two.len() as u64]);
    world.words(0x100, &[1 | 2 << 32, 0x200, 0x300]);
    list.look(&world, &mut table, || 4, false);
    assert_eq!(live(&table), [("two".to_owned(), 0x8000)]);
    assert_eq!(table.events.last().map(|e| (e.when, e.comes)), Some((When { after: 3, by: 4 }, false)));

    // The entry and the image's address and size are the same as before; the function differs.
    world.words(0x100, &[1 | 1 << 32, 0x300, 0x300]);
    list.look(&world, &mut table, || 5, true);
    world.put(0x20000, &three);
    list.look(&world, &mut table, || 6, false);
    assert_eq!(live(&table), [("two".to_owned(), 0x8000)], "the JIT reported nothing");
    list.look(&world, &mut table, || 7, true);
    assert_eq!(live(&table), [("six".to_owned(), 0x7000)]);
}

#[test]
fn lists_that_lead_nowhere_or_in_circles_end() {
    let (world, mut table, mut list) = (World::default(), Table::default(), Descriptor::new(0x100, 0));
    world.words(0x200, &[0x300, 0, 0x666, 8]);
    world.words(0x300, &[0x300, 0, 0x666, u64::MAX]);
    world.words(0x100, &[1, 0x200, 0x200]);
    list.look(&world, &mut table, || 1, false);
    world.words(0x300, &[0xdead_0000, 0, 0x666, 8]);
    list.look(&world, &mut table, || 1, true);
    Descriptor::new(0xdead_0000, 0).look(&world, &mut table, || 1, true);
    assert!(table.codes.is_empty());
}

#[test]
fn the_head_is_found_where_nm_has_it() {
    let folder = std::env::temp_dir().join(format!("uu-gdb-jit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, made) = (folder.join("head.c"), folder.join("head.so"));
    let text = "struct d { unsigned version, action; void *relevant, *first; };\n\
                __attribute__((visibility(\"hidden\"), used)) struct d __jit_debug_descriptor = {1, 0, 0, 0};";
    std::fs::write(&source, text).expect("a source");
    let done = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(&source).status().expect("gcc runs");
    assert!(done.success());
    let nm = Command::new("nm").arg(&made).output().expect("nm runs");
    let nm = String::from_utf8_lossy(&nm.stdout).into_owned();
    let line = nm.lines().find(|l| l.ends_with("__jit_debug_descriptor")).expect("nm shows it");
    let expected = u64::from_str_radix(line.split(' ').next().unwrap_or(""), 16).ok();
    assert_eq!(find(&Image::open(&made).expect("the object")), expected);
    functions(&b"\x7fELF no"[..], |_| panic!("no function"));
}

/// 65,000 entries, all of which lead to the same 64 MiB.
struct Bomb {
    copied: std::cell::Cell<u64>,
}

impl Bomb {
    const ENTRIES: u64 = 65_000;
    const FIRST: u64 = 0x1_0000;
    const SIZE: u64 = 64 << 20;
}

impl Memory for Bomb {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let words = |words: &[u64]| Some(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        match address {
            0x100 => words(&[1, 0, Self::FIRST]),
            0x200 => {
                self.copied.set(self.copied.get() + len as u64);
                Some(Vec::new())
            }
            entry => {
                let next = entry + 32;
                let last = (next - Self::FIRST) / 32 >= Self::ENTRIES;
                words(&[if last { 0 } else { next }, 0, 0x200, Self::SIZE])
            }
        }
    }
}

#[test]
fn a_list_of_large_objects_costs_a_bounded_number_of_bytes() {
    let (bomb, mut table) = (Bomb { copied: std::cell::Cell::new(0) }, Table::default());
    let mut list = Descriptor::new(0x100, 0);
    let mut before = 0;
    for look in 1..=A_LIST / A_LOOK + 2 {
        list.look(&bomb, &mut table, || look, true);
        assert!(bomb.copied.get() - before <= A_LOOK, "look {look}");
        before = bomb.copied.get();
    }
    assert_eq!(bomb.copied.get(), A_LIST);
    assert_eq!(list.spent(), Bomb::ENTRIES - A_LIST / Bomb::SIZE, "the rest is left out, and counted once");
}

/// The object that the JIT reported last is read again in each look. That must not use up the bytes left for other
/// objects.
#[test]
fn an_object_that_is_read_again_and_again_leaves_room_for_others() {
    let (world, mut table, mut list) = (World::default(), Table::default(), Descriptor::new(0x100, 0));
    let image = object("again", 0x7000);
    world.put(0x10000, &image);
    world.words(0x200, &[0, 0, 0x10000, image.len() as u64]);
    world.words(0x100, &[1, 0x200, 0x200]);
    for look in 1..100 {
        list.look(&world, &mut table, || look, true);
    }
    assert_eq!(list.list_left, A_LIST - image.len() as u64);
}

#[test]
fn a_look_that_took_long_is_not_followed_by_the_next_at_once() {
    let (world, mut table, mut list) = (World::default(), Table::default(), Descriptor::new(0x100, 0));
    world.words(0x100, &[1, 0, 0]);
    let now = std::cell::Cell::new(1000);
    // Each call of the clock takes 10.
    let clock = || now.replace(now.get() + 10);
    list.look(&world, &mut table, clock, true);
    assert_eq!(list.looks, 1);
    now.set(list.not_before - 1);
    list.look(&world, &mut table, clock, true);
    assert_eq!(list.looks, 1);
    now.set(list.not_before);
    list.look(&world, &mut table, clock, true);
    assert_eq!(list.looks, 2);
}
