//! What was given to libgcc's `__register_frame` and its family. libgcc keeps it in variables that no symbol of a
//! stripped file names; its own function that takes a registration back, which every libgcc exports, is full of them.
//!
//! Until GCC 12 they are the heads of two lists of objects: what was registered since the last search, and the rest
//! (<https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind-dw2-fde.c>). Since GCC 13 they are trees
//! of objects by the addresses of code, and of unwind data
//! (<https://github.com/gcc-mirror/gcc/blob/releases/gcc-14.2.0/libgcc/unwind-dw2-btree.h>).

use super::frames::Frames;
use object::elf;
use uunwind_core::memory::Reader;
use uunwind_eh_frame::scan::Shape;
use uunwind_elf::Image;

/// The function that takes a registration back.
const FUNCTION: &str = "__deregister_frame_info_bases";
/// At most this number of bytes of it is read.
const CODE: usize = 1024;
/// The variables' names, where a file has its symbols.
const LISTS: [&str; 2] = ["unseen_objects", "seen_objects"];
const TREES: [&str; 2] = ["registered_frames", "registered_objects"];
/// More levels than a tree in memory has: inner nodes are at least half full.
const LEVELS: usize = 24;
const INNER: u32 = 15;
const LEAF: u32 = 10;

/// A variable in which libgcc keeps registrations: its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    List(u64),
    Tree(u64),
}

/// The variables of a file (file addresses).
pub fn find(image: &Image) -> Vec<Root> {
    let Some(function) = image.any_symbol(FUNCTION) else { return Vec::new() };
    let named = |names: [&'static str; 2]| names.into_iter().filter_map(|name| Some(image.any_symbol(name)?.address));
    let mut found: Vec<Root> = named(LISTS).map(Root::List).chain(named(TREES).map(Root::Tree)).collect();
    if found.is_empty() {
        let len = usize::try_from(function.size).map_or(CODE, |size| size.min(CODE));
        let mut code = vec![0; len];
        if image.read_address(function.address, &mut code) {
            found = in_code(&code, function.address, |address| is_variable(image, address));
        }
    }
    found
}

/// Whether an address lies in a file's variables.
fn is_variable(image: &Image, address: u64) -> bool {
    let of = |load: &&uunwind_elf::Segment| load.kind == elf::PT_LOAD && load.flags & elf::PF_W != 0;
    let mut loads = image.segments().iter().filter(of);
    address.is_multiple_of(8) && loads.any(|load| address.wrapping_sub(load.address) < load.memory_size)
}

/// The variables that the function's code refers to: of which the address is taken (`lea`) and, if they are heads of
/// lists, which are loaded (`mov`), both relative to the instruction. Encodings: Intel SDM, volume 2.
fn in_code(code: &[u8], start: u64, is_variable: impl Fn(u64) -> bool) -> Vec<Root> {
    let (mut loaded, mut taken) = (Vec::new(), Vec::new());
    for (at, part) in code.windows(7).enumerate() {
        let [rex, opcode, modrm, distance @ ..] = part else { continue };
        if rex & 0xf8 != 0x48 || modrm & 0xc7 != 5 {
            continue;
        }
        let Ok(distance) = <[u8; 4]>::try_from(distance) else { continue };
        let distance = i64::from(i32::from_le_bytes(distance));
        let target = start.wrapping_add(at as u64 + 7).wrapping_add_signed(distance);
        let list = match opcode {
            0x8b => &mut loaded,
            0x8d => &mut taken,
            _ => continue,
        };
        if is_variable(target) && !list.contains(&target) {
            list.push(target);
        }
    }
    let lists: Vec<Root> = taken.iter().filter(|at| loaded.contains(at)).map(|at| Root::List(*at)).collect();
    if lists.is_empty() {
        return taken.into_iter().map(Root::Tree).collect();
    }
    lists
}

impl Root {
    /// The same in a process whose addresses are larger by `bias`.
    pub fn moved(self, bias: u64) -> Root {
        match self {
            Root::List(at) => Root::List(bias.wrapping_add(at)),
            Root::Tree(at) => Root::Tree(bias.wrapping_add(at)),
        }
    }

    /// Its address.
    pub fn at(self) -> u64 {
        let (Root::List(at) | Root::Tree(at)) = self;
        at
    }

    /// Adds what is registered there.
    pub fn read(self, reader: &mut Reader<'_>, frames: &mut Frames) {
        let mut steps = 0;
        match self {
            Root::List(at) => {
                let mut object = reader.word(at).unwrap_or(0);
                while object != 0 && frames.goes_on(steps) {
                    registration(object, reader, frames);
                    object = reader.word(object.wrapping_add(40)).unwrap_or(0);
                    steps += 1;
                }
            }
            Root::Tree(at) => {
                let mut next = vec![(reader.word(at).unwrap_or(0), 0)];
                while let Some((node, level)) = next.pop() {
                    if node == 0 || level >= LEVELS || !frames.goes_on(steps) {
                        continue;
                    }
                    steps += 1;
                    node_of_tree(node, level, &mut next, reader, frames);
                }
            }
        }
    }
}

/// A node of a tree: a lock, the number of entries, whether it is a leaf; entries of inner nodes are a key and a node,
/// those of leaves the start and length of a range, and an object.
fn node_of_tree(
    node: u64,
    level: usize,
    next: &mut Vec<(u64, usize)>,
    reader: &mut Reader<'_>,
    frames: &mut Frames,
) -> Option<()> {
    let (count, kind) = (reader.u32(node.wrapping_add(8))?, reader.u32(node.wrapping_add(12))?);
    let entry = |index: u32, size: u64, field: u64| node.wrapping_add(16 + u64::from(index) * size + field);
    match kind {
        0 => {
            for index in 0..count.min(INNER) {
                next.push((reader.word(entry(index, 16, 8))?, level + 1));
            }
        }
        1 => {
            for index in 0..count.min(LEAF) {
                let object = reader.word(entry(index, 24, 16))?;
                registration(object, reader, frames);
            }
        }
        _ => {}
    }
    Some(())
}

/// An object: three addresses, what was registered, its state, (the next one). After a search, what was registered
/// stands first in a sorted copy.
fn registration(object: u64, reader: &mut Reader<'_>, frames: &mut Frames) -> Option<()> {
    const SORTED: u32 = 1;
    const ARRAY: u32 = 2;
    let data = reader.word(object.wrapping_add(24))?;
    let state = reader.u32(object.wrapping_add(32))?;
    let begin = if state & SORTED != 0 { reader.word(data)? } else { data };
    let shape = if state & ARRAY != 0 { Shape::Table } else { Shape::List };
    frames.add(begin, shape, None, reader);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_in_the_code_of_old_and_new_functions() {
        // mov 0x100(%rip),%rax; lea 0xf9(%rip),%rcx: the same variable; lea 0x200(%rip),%rdi: a lock.
        let old = [
            [0x48, 0x8b, 0x05, 0x00, 0x01, 0, 0],
            [0x48, 0x8d, 0x0d, 0xf9, 0x00, 0, 0],
            [0x48, 0x8d, 0x3d, 0x00, 0x02, 0, 0],
        ];
        let found = in_code(old.as_flattened(), 0x1000, |_| true);
        assert_eq!(found, [Root::List(0x1107)]);
        // The tree's address only.
        let new = [[0x48, 0x8d, 0x3d, 0x00, 0x02, 0, 0]];
        assert_eq!(in_code(new.as_flattened(), 0x1000, |_| true), [Root::Tree(0x1207)]);
        assert_eq!(in_code(new.as_flattened(), 0x1000, |_| false), []);
    }
}
