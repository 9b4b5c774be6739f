//! A range of addresses.

/// Addresses from `start` up to, but not including, `end`. Whoever holds one says whether these are process addresses,
/// file addresses, or offsets in a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

impl Span {
    /// No address. The span of what is not there.
    pub const EMPTY: Span = Span { start: 0, end: 0 };

    /// From `start` up to `end`, exclusive.
    #[inline(always)]
    pub const fn new(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    /// `len` bytes from `start` on, at most to the end of the address space.
    #[inline(always)]
    pub const fn sized(start: u64, len: u64) -> Span {
        Span { start, end: start.saturating_add(len) }
    }

    /// Number of bytes; 0 if the end is before the start.
    #[inline(always)]
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether no address lies in it.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether the address lies in it.
    #[inline(always)]
    pub const fn contains(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether all of another span lies in it.
    #[inline(always)]
    pub const fn covers(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}
