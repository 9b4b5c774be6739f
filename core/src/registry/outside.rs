//! What a reader of the process's memory must know to find its windows: a debugger, a reader of core files, uu from
//! outside. A library exports it under [`SYMBOL`]; all places stand in it, so that a reader need not be of the same
//! build. `docs/design/remote.md` describes it.

use super::grace::Root;
use super::tree::{Node, CAPACITY};
use super::window::{Held, Window};
use core::mem::offset_of;

/// The symbol of the library's [`Outside`]. A later version has another one.
pub const SYMBOL: &str = "uu_private_windows_1";
/// What it begins with.
pub const MAGIC: [u8; 8] = *b"uuwindow";
/// [`Outside::version`].
pub const VERSION: u32 = 1;

/// The place of the windows, and the shape of what lies there.
#[repr(C)]
pub struct Outside {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Size of this structure in bytes. Later fields may follow those of this version.
    pub size: u32,
    /// Process address of a word that holds the address of the root node; 0 in it: there are no windows.
    root: &'static Root<Node>,
    /// Where the fields of nodes and windows lie.
    pub shape: Shape,
}

impl Outside {
    pub(super) const fn of(root: &'static Root<Node>) -> Outside {
        Outside { magic: MAGIC, version: VERSION, size: size_of::<Outside>() as u32, root, shape: Shape::OWN }
    }
}

macro_rules! shape {
    ($($(#[$doc:meta])* $field:ident = $value:expr;)*) => {
        /// Sizes and places, in bytes. A node has `node_entries` keys and as many addresses at most, which are those of
        /// nodes, or where its height is 0, of windows' cells. The key of an entry is the lowest start below it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(C)]
        pub struct Shape {
            $($(#[$doc])* pub $field: u32,)*
        }

        impl Shape {
            /// The shape in this build.
            pub const OWN: Shape = Shape { $($field: $value as u32,)* };
            /// Number of its fields.
            pub const FIELDS: usize = [$(stringify!($field)),*].len();

            /// The shape with these fields, in the order in which they lie.
            pub const fn of_fields([$($field),*]: [u32; Shape::FIELDS]) -> Shape {
                Shape { $($field,)* }
            }
        }
    };
}

shape! {
    /// Size of a node.
    node_size = size_of::<Node>();
    /// Place of the first key, a word each.
    node_keys = offset_of!(Node, keys);
    /// Place of the first address, a word each.
    node_below = offset_of!(Node, below);
    /// Most entries of a node (a number).
    node_entries = CAPACITY;
    /// The number of the change that made the node, a word: that of the root differs in every tree.
    node_change = offset_of!(Node, birth);
    /// The number of its entries, 4 bytes.
    node_len = offset_of!(Node, len);
    /// Its height, 4 bytes.
    node_height = offset_of!(Node, height);
    /// Size of a window's cell.
    cell_size = size_of::<Held>();
    /// The generation of the window in the cell, a word; 0: none, or one that is being written.
    cell_generation = offset_of!(Held, life.generation);
    /// Not 0, a word: the window was removed.
    cell_unlinked = offset_of!(Held, life.unlinked);
    /// First address of its text, a word; this and the next are those of `uu.h`'s struct uu_window.
    window_start = offset_of!(Held, window) + offset_of!(Window, start);
    /// End of its text, exclusive, a word.
    window_end = offset_of!(Held, window) + offset_of!(Window, end);
    /// Its kind, 4 bytes.
    window_kind = offset_of!(Held, window) + offset_of!(Window, kind);
    /// Its flags, 4 bytes; bit 31: its registrar gave no unwind data.
    window_flags = offset_of!(Held, window) + offset_of!(Window, flags);
    /// Address of its unwind data, a word.
    window_unwind = offset_of!(Held, window) + offset_of!(Window, unwind);
    /// Length of that in bytes, a word.
    window_unwind_len = offset_of!(Held, window) + offset_of!(Window, unwind_len);
    /// Address of its table of functions, a word.
    window_functions = offset_of!(Held, window) + offset_of!(Window, functions);
    /// Capacity of the table, a word.
    window_capacity = offset_of!(Held, window) + offset_of!(Window, capacity);
    /// Address of the counter of valid functions, a word; 0: all are valid.
    window_published = offset_of!(Held, window) + offset_of!(Window, published);
}

const _: () = assert!(size_of::<Outside>() == 8 + 8 + 8 + (Shape::FIELDS * 4).next_multiple_of(8));
