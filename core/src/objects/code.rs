//! Where an object's code is: its executable segments.

use super::super::headers::Headers;
use crate::memory::Reader;
use crate::span::Span;

/// Number of segments that are kept apart. Linkers make one; binary rewriters add a second.
const SEGMENTS: usize = 3;

/// The executable segments of an object, as process addresses. An object whose program headers cannot be read has none
/// that are available, and then any of its addresses may be code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Code {
    ranges: [Span; SEGMENTS],
}

impl Code {
    /// By the program headers of an object with this load bias. If there are more segments than are kept apart, the
    /// last range reaches from one to the other.
    pub(crate) fn read(headers: &Headers, bias: u64, reader: &mut Reader<'_>) -> Code {
        let mut code = Code::default();
        let mut count = 0;
        headers.each_executable(bias, reader, |segment| {
            let place = usize::min(count, SEGMENTS - 1);
            if let Some(range) = code.ranges.get_mut(place) {
                let other = if count < SEGMENTS { segment } else { *range };
                *range = Span::new(segment.start.min(other.start), segment.end.max(other.end));
            }
            count += 1;
        });
        code
    }

    /// The range that holds `address`, or that ends there; `None`: no range does, or none is available.
    pub fn range_at(&self, address: u64) -> Option<Span> {
        self.ranges.iter().find(|range| range.contains(address) || !range.is_empty() && range.end == address).copied()
    }

    /// Whether `address` lies in executable memory, as far as that can be determined.
    pub fn may_hold(&self, address: u64) -> bool {
        self.ranges == [Span::EMPTY; SEGMENTS] || self.ranges.iter().any(|range| range.contains(address))
    }
}
