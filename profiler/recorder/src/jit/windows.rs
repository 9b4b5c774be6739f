//! The windows of a libuunwind in another process, by what it exports for that
//! ([`uunwind_core::registry::outside`]).
//!
//! The nodes of the tree never change once they are published, but may be used for other ones when the tree has
//! changed: so the root, and the window that was found, are read again after the lookup. A root belongs to one change
//! only, and a window's generation to one window.

use super::gdb::LARGEST_CONSTANT;
use uunwind_core::memory::Reader;
use uunwind_core::registry::functions;
use uunwind_core::registry::outside::{Shape, MAGIC, VERSION};
use uunwind_core::registry::tree::MAX_HEIGHT;
use uunwind_core::registry::window::{Function, Kind, Window, NO_UNWIND};
use uunwind_core::registry::LIMIT;
use uunwind_core::span::Span;

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
        Root::read_by(at, &mut |at, out| reader.read(at, out))
    }

    /// The same, where `read` reads the process's memory.
    pub fn read_by(at: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<Root> {
        let mut head = [0; HEAD];
        let mut fields = [0; Shape::FIELDS * 4];
        if !read(at, &mut head) || !read(at.checked_add(HEAD as u64)?, &mut fields) {
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

    /// The process address of the root node and the number of the change that made it, which differ after each change
    /// of the tree. `None`: there are no windows.
    pub fn state(&self, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<(u64, u64)> {
        let mut word_at = |at: u64| {
            let mut bytes = [0; 8];
            read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
        };
        let root = word_at(self.at).filter(|root| *root != 0)?;
        Some((root, word_at(root.checked_add(u64::from(self.shape.node_change))?)?))
    }

    /// The places of the windows' cells (process addresses), with the first address of each one's text: at most `most`.
    /// False: something could not be read, or there are more.
    pub fn cells(
        &self,
        most: usize,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        give: &mut dyn FnMut(u64, u64),
    ) -> bool {
        let Some((root, _)) = self.state(read) else { return true };
        let (mut nodes, mut left, mut visits) = (vec![(root, u32::MAX)], most, most);
        let mut bytes = vec![0; self.shape.node_size as usize];
        while let Some((node, below)) = nodes.pop() {
            if visits == 0 || !read(node, &mut bytes) {
                return false;
            }
            visits -= 1;
            let (Some(len), Some(height)) =
                (number(&bytes, self.shape.node_len), number(&bytes, self.shape.node_height))
            else {
                return false;
            };
            // Heights fall from the root to the leaves.
            if height >= below {
                return false;
            }
            for index in 0..len.min(self.shape.node_entries) {
                let key = word(&bytes, self.shape.node_keys + index * 8);
                let (Some(key), Some(at)) = (key, word(&bytes, self.shape.node_below + index * 8)) else {
                    return false;
                };
                if height > 0 {
                    if nodes.len() >= most {
                        return false;
                    }
                    nodes.push((at, height));
                    continue;
                }
                if left == 0 {
                    return false;
                }
                left -= 1;
                give(at, key);
            }
        }
        true
    }

    /// The window in a cell that begins at `start`, if it is registered now.
    pub fn window_at(&self, cell: u64, start: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<Window> {
        let mut bytes = [0; CELL];
        let bytes = bytes.get_mut(..self.shape.cell_size as usize)?;
        let window = read(cell, bytes).then(|| self.window_of(bytes)).flatten()?;
        (window.start == start && self.is_still(cell, window.generation, read)).then_some(window)
    }

    /// Whether the window with this generation is still in its cell, and was not removed.
    pub fn is_still(&self, cell: u64, generation: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> bool {
        let mut is = |field: u32, value: u64| {
            let mut bytes = [0; 8];
            read(cell.wrapping_add(u64::from(field)), &mut bytes) && u64::from_le_bytes(bytes) == value
        };
        is(self.shape.cell_generation, generation) && is(self.shape.cell_unlinked, 0)
    }

    /// The window in a cell, if it covers the address.
    fn window(&self, cell: u64, address: u64, reader: &mut Reader<'_>) -> Option<Window> {
        let mut bytes = [0; CELL];
        let bytes = bytes.get_mut(..self.shape.cell_size as usize)?;
        let window = reader.read(cell, bytes).then(|| self.window_of(bytes)).flatten()?;
        (window.start..window.end).contains(&address).then_some(window)
    }

    /// The window that a cell's bytes describe.
    fn window_of(&self, bytes: &[u8]) -> Option<Window> {
        let s = &self.shape;
        let (start, end) = (word(bytes, s.window_start)?, word(bytes, s.window_end)?);
        let generation = word(bytes, s.cell_generation).filter(|generation| *generation != 0)?;
        Some(Window {
            generation,
            flags: number(bytes, s.window_flags)?,
            unwind: word(bytes, s.window_unwind)?,
            unwind_len: word(bytes, s.window_unwind_len)?,
            functions: word(bytes, s.window_functions)?,
            capacity: word(bytes, s.window_capacity)?,
            published: word(bytes, s.window_published)?,
            ..Window::new(start, end, Kind::from_number(number(bytes, s.window_kind)?)?)
        })
    }
}

/// The function of a window around an address of which its registrar has no unwind data, and whose rules may be made
/// from its machine code: its addresses.
pub fn undescribed(window: &Window, lookup: u64, reader: &mut Reader<'_>) -> Option<Span> {
    if window.kind == Kind::Code && window.functions == 0 {
        return Some(Span::new(window.start, window.end));
    }
    let function = functions::find(window, lookup, reader)?;
    let is_so = window.kind == Kind::Code || window.kind == Kind::EhFrame && function.unwind == NO_UNWIND;
    let start = window.start.checked_add(u64::from(function.start))?;
    is_so.then(|| Span::sized(start, u64::from(function.len)))
}

/// Where tables of jumps of a window's functions may lie, beside them: in the window, if it is small. Walks compare it.
pub fn tables(window: &Window) -> Option<Span> {
    let whole = Span::new(window.start, window.end);
    (window.functions != 0 && whole.len() <= LARGEST_CONSTANT).then_some(whole)
}

/// The functions of a window whose rules may be made from its machine code, as [`undescribed`] finds them: their
/// addresses, of the first `most` ones in its table. `None`: the table cannot be read.
pub fn undescribed_functions(
    window: &Window,
    most: usize,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<Vec<Span>> {
    const ENTRY: usize = size_of::<Function>();
    if window.functions == 0 {
        let is_so = window.kind == Kind::Code && window.start < window.end;
        return Some(if is_so { vec![Span::new(window.start, window.end)] } else { Vec::new() });
    }
    let mut count = window.capacity;
    if window.published != 0 {
        let mut published = [0; 8];
        count = read(window.published, &mut published).then(|| u64::from_le_bytes(published))?.min(count);
    }
    let mut entries = vec![0; count.min(most as u64) as usize * ENTRY];
    if !read(window.functions, &mut entries) {
        return None;
    }
    let of = |entry: &[u8]| {
        let (start, len, unwind) = (number(entry, 0)?, number(entry, 4)?, number(entry, 8)?);
        let is_so = window.kind == Kind::Code || window.kind == Kind::EhFrame && unwind == NO_UNWIND;
        let span = Span::sized(window.start.checked_add(u64::from(start))?, u64::from(len));
        // A tombstone has no bytes.
        (is_so && len > 0 && span.end <= window.end).then_some(span)
    };
    Some(entries.chunks_exact(ENTRY).filter_map(of).collect())
}

fn word(bytes: &[u8], at: u32) -> Option<u64> {
    bytes.get(at as usize..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

fn number(bytes: &[u8], at: u32) -> Option<u32> {
    bytes.get(at as usize..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}
