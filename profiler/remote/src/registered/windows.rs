//! The windows of a libuunwind in another process, by what it exports for that
//! ([`uunwind_core::registry::outside`]).
//!
//! The nodes of the tree never change once they are published, but may be used for other ones when the tree has
//! changed: so the root, and the window that was found, are read again after the lookup. A root belongs to one change
//! only, and a window's generation to one window.

use uunwind_core::memory::Reader;
use uunwind_core::registry::outside::{Shape, MAGIC, VERSION};
use uunwind_core::registry::tree::MAX_HEIGHT;
use uunwind_core::registry::window::{Kind, Window};
use uunwind_core::registry::LIMIT;

/// Sizes that a description may state, in bytes.
const NODE: usize = 4096;
const CELL: usize = 1024;
/// Size of the description up to the shape.
const HEAD: usize = 24;

/// The windows of one library.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Process address of the word that holds the root node's address.
    at: u64,
    shape: Shape,
}

/// What a lookup gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// This window covers the address.
    Window(Window),
    /// None does.
    None,
    /// Windows came or went meanwhile.
    Changed,
}

impl Root {
    /// Reads the description at a process address. `None`: there is none, or one that makes no sense.
    pub fn read(at: u64, reader: &mut Reader<'_>) -> Option<Root> {
        let mut head = [0; HEAD];
        let mut fields = [0; Shape::FIELDS * 4];
        if !reader.read(at, &mut head) || !reader.read(at.checked_add(HEAD as u64)?, &mut fields) {
            return None;
        }
        let is_known = head.starts_with(&MAGIC) && number(&head, 8)? == VERSION;
        let is_whole = number(&head, 12)? as usize >= HEAD + fields.len();
        let (numbers, _) = fields.as_chunks::<4>();
        let shape = Shape::of_fields(std::array::from_fn(|i| numbers.get(i).map_or(0, |n| u32::from_le_bytes(*n))));
        let root = Root { at: word(&head, 16)?, shape };
        (is_known && is_whole && root.is_sound()).then_some(root)
    }

    /// Whether all fields lie in what is read.
    fn is_sound(&self) -> bool {
        let s = &self.shape;
        let (node, cell) = (s.node_size as usize, s.cell_size as usize);
        let inside = |at: u32, len: usize, size: usize| at as usize + len <= size;
        let entries = s.node_entries as usize;
        let words = [
            s.cell_generation,
            s.cell_unlinked,
            s.window_start,
            s.window_end,
            s.window_unwind,
            s.window_unwind_len,
            s.window_functions,
            s.window_capacity,
            s.window_published,
        ];
        self.at != 0
            && node <= NODE
            && cell <= CELL
            && entries <= NODE / 16
            && inside(s.node_keys, entries * 8, node)
            && inside(s.node_below, entries * 8, node)
            && inside(s.node_change, 8, node)
            && [s.node_len, s.node_height].iter().all(|at| inside(*at, 4, node))
            && words.iter().all(|at| inside(*at, 8, cell))
            && [s.window_kind, s.window_flags].iter().all(|at| inside(*at, 4, cell))
    }

    /// Whether there is any window.
    pub fn has_windows(&self, reader: &mut Reader<'_>) -> bool {
        let root = reader.word(self.at).unwrap_or(0);
        let len = root.checked_add(u64::from(self.shape.node_len)).and_then(|at| reader.u32(at));
        root != 0 && len.is_some_and(|len| len != 0)
    }

    /// The window that covers `address`. `now`: reads a word as it is now, and not as it was read before.
    pub fn find(&self, address: u64, reader: &mut Reader<'_>, now: &mut dyn FnMut(u64) -> Option<u64>) -> Answer {
        let Some(root) = reader.word(self.at) else { return Answer::None };
        if root == 0 || address >= LIMIT {
            return Answer::None;
        }
        let found = self.descend(root, address, reader);
        let place = |cell: u64, field: u32| cell.wrapping_add(u64::from(field));
        if let Some((cell, window)) = found {
            let still = now(place(cell, self.shape.cell_generation)) == Some(window.generation)
                && now(place(cell, self.shape.cell_unlinked)) == Some(0);
            return if still { Answer::Window(window) } else { Answer::Changed };
        }
        let change = reader.word(place(root, self.shape.node_change));
        let same = now(self.at) == Some(root) && now(place(root, self.shape.node_change)) == change;
        if same {
            Answer::None
        } else {
            Answer::Changed
        }
    }

    /// The cell and the window that cover an address, in the tree with this root.
    fn descend(&self, root: u64, address: u64, reader: &mut Reader<'_>) -> Option<(u64, Window)> {
        let (mut node, mut bytes) = (root, [0; NODE]);
        let bytes = bytes.get_mut(..self.shape.node_size as usize)?;
        let mut height = u32::MAX;
        for _ in 0..=MAX_HEIGHT {
            if !reader.read(node, bytes) {
                return None;
            }
            let below = self.below(bytes, address)?;
            let of = number(bytes, self.shape.node_height)?;
            if of == 0 {
                return Some((below, self.window(below, address, reader)?));
            }
            // Heights fall from the root to the leaves.
            if of >= height {
                return None;
            }
            (node, height) = (below, of);
        }
        None
    }

    /// The last entry of a node at or below an address.
    fn below(&self, node: &[u8], address: u64) -> Option<u64> {
        let len = number(node, self.shape.node_len)?.min(self.shape.node_entries);
        let key = |index: u32| word(node, self.shape.node_keys + index * 8);
        let after = (0..len).take_while(|index| key(*index).is_some_and(|key| key <= address)).count() as u32;
        word(node, self.shape.node_below + after.checked_sub(1)? * 8)
    }

    /// The window in a cell, if it covers the address.
    fn window(&self, cell: u64, address: u64, reader: &mut Reader<'_>) -> Option<Window> {
        let (s, mut bytes) = (&self.shape, [0; CELL]);
        let bytes = bytes.get_mut(..s.cell_size as usize)?;
        if !reader.read(cell, bytes) {
            return None;
        }
        let bytes = &*bytes;
        let (start, end) = (word(bytes, s.window_start)?, word(bytes, s.window_end)?);
        let generation = word(bytes, s.cell_generation).filter(|generation| *generation != 0)?;
        let window = Window {
            generation,
            flags: number(bytes, s.window_flags)?,
            unwind: word(bytes, s.window_unwind)?,
            unwind_len: word(bytes, s.window_unwind_len)?,
            functions: word(bytes, s.window_functions)?,
            capacity: word(bytes, s.window_capacity)?,
            published: word(bytes, s.window_published)?,
            ..Window::new(start, end, Kind::from_number(number(bytes, s.window_kind)?)?)
        };
        (start..end).contains(&address).then_some(window)
    }
}

fn word(bytes: &[u8], at: u32) -> Option<u64> {
    bytes.get(at as usize..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

fn number(bytes: &[u8], at: u32) -> Option<u32> {
    bytes.get(at as usize..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}
