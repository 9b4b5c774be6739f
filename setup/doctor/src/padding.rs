//! Padding: what assemblers and linkers put between functions so that the next one is aligned. It is never executed, so
//! no source describes it; counted as code, it would look like a gap.
//!
//! Only a range outside of every source's rows and of every symbol is examined, and it is padding only if all of it is:
//! code that no source describes is not cut short by the bytes that it begins or ends with.

use super::binary::{Text, View};
use super::chosen::{Choice, Range};
use super::unwind_row::Piece;
use object::{Object, ObjectSymbol, SymbolKind};
use uunwind_core::span::Span;
use uunwind_tables::Table;

/// The padding of a file, by address, without overlaps. `by_code`: what the rule table has from the machine code.
pub fn of(view: &View<'_>, sources: &[&[Piece]], by_code: &[Span]) -> Vec<Span> {
    let mut taken: Vec<Span> =
        sources.iter().flat_map(|pieces| pieces.iter()).map(|piece| Span::new(piece.start, piece.end)).collect();
    taken.extend(by_code);
    taken.extend(symbols(view));
    let mut all = gaps(&view.text, taken);
    all.retain(|gap| {
        let from = view.at(gap.start).map(|part| part.bytes);
        from.is_some_and(|bytes| usize::try_from(gap.len()).is_ok_and(|len| is_padding(bytes, len)))
    });
    all
}

/// Says [`Choice::Padding`] where nothing but the frame pointer would be chosen for padding.
pub fn mark(ranges: &mut Vec<Range>, padding: &[Span]) {
    let mut marked = Vec::with_capacity(ranges.len());
    for range in ranges.iter() {
        let mut at = range.start;
        let inside = padding.get(padding.partition_point(|filled| filled.end <= range.start)..).unwrap_or(&[]);
        for filled in inside.iter().take_while(|filled| filled.start < range.end) {
            let (start, end) = (filled.start.max(range.start), filled.end.min(range.end));
            if range.choice == Choice::FramePointer {
                let before = Range { start: at, end: start, ..*range };
                marked.extend((at < start).then_some(before));
                marked.push(Range { start, end, choice: Choice::Padding });
                at = end;
            }
        }
        marked.extend((at < range.end).then_some(Range { start: at, ..*range }));
    }
    *ranges = marked;
}

/// What a rule table has rules for from the machine code.
pub fn by_code(table: &Table<'_>) -> Vec<Span> {
    let starts: Vec<u64> = table.rows().map(|(at, ..)| at).collect();
    let spans = starts.iter().zip(starts.iter().skip(1)).map(|(start, end)| Span::new(*start, *end));
    spans.filter(|span| table.is_by_code(span.start)).collect()
}

/// What symbols cover. One without a size reaches to the next, since nothing says where it ends.
fn symbols(view: &View<'_>) -> Vec<Span> {
    let is_code = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
    let both = view.elf.symbols().chain(view.elf.dynamic_symbols());
    let mut sizes: Vec<(u64, u64)> = both
        .filter(|symbol| symbol.is_definition() && is_code(symbol.kind()))
        .map(|symbol| (symbol.address(), symbol.size()))
        .collect();
    sizes.sort_unstable();
    let mut next = u64::MAX;
    let covered = sizes.into_iter().rev().map(|(start, size)| {
        // Of several without a size at one place, the last one reaches to the next place, and the others are empty.
        let end = if size == 0 { next } else { start.saturating_add(size) };
        next = start;
        Span::new(start, end)
    });
    covered.collect()
}

/// The parts of the text that are not taken.
fn gaps(text: &[Text], mut taken: Vec<Span>) -> Vec<Span> {
    taken.sort_unstable();
    let mut taken = taken.into_iter().peekable();
    let (mut all, mut free) = (Vec::new(), 0);
    for text in text {
        free = text.start.max(free);
        while let Some(Span { start, end }) = taken.next_if(|taken| taken.start < text.end) {
            if start > free {
                all.push(Span::new(free, start));
            }
            free = free.max(end);
        }
        if free < text.end {
            all.push(Span::new(free, text.end));
        }
    }
    all
}

/// Whether this many bytes are instructions that do nothing (`nop` of any length), traps (`int3`) or zeros, and nothing
/// else. The FDE of a signal trampoline begins a byte before its code, and so may lie inside the last one.
fn is_padding(bytes: &[u8], len: usize) -> bool {
    let mut at = 0;
    while at < len {
        let Some(more) = bytes.get(at..).and_then(filler) else { return false };
        at += more;
    }
    at <= len + 1
}

/// Most prefixes that an assembler puts before a `nop`; an instruction has 15 bytes at most.
const PREFIXES: usize = 14;

/// The length of the filling instruction that bytes begin with.
fn filler(bytes: &[u8]) -> Option<usize> {
    if matches!(bytes.first()?, 0x00 | 0xcc) {
        return Some(1);
    }
    // Operand size and segment CS.
    let prefixes = bytes.iter().take(PREFIXES).take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    match bytes.get(prefixes..)? {
        [0x90, ..] => Some(prefixes + 1),
        // nop r/m: the operand is not used.
        [0x0f, 0x1f, operand, rest @ ..] if operand & 0x38 == 0 => {
            let (mode, base) = (operand >> 6, operand & 7);
            let scaled = usize::from(mode != 3 && base == 4);
            // Without a mode, two bases stand for a displacement: none (rip), or none after a scaled index.
            let alone = mode == 0 && (base == 5 || scaled == 1 && rest.first()? & 7 == 5);
            let displacement = match mode {
                _ if alone => 4,
                1 => 1,
                2 => 4,
                _ => 0,
            };
            let len = prefixes + 3 + scaled + displacement;
            (len <= 15 && len <= bytes.len()).then_some(len)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_is_padding() {
        // As the Intel manual recommends them (SDM, volume 2, NOP), and what gas and lld make of more bytes.
        let fill: [&[u8]; 13] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
            &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
            &[0xcc, 0xcc, 0xcc],
            &[0x00, 0x00],
        ];
        for bytes in fill {
            assert!(is_padding(bytes, bytes.len()), "{bytes:x?}");
        }
        let all = fill.concat();
        assert!(is_padding(&all, all.len()));
        assert!(is_padding(fill[4], 4), "the last byte belongs to a trampoline's FDE");
        assert!(!is_padding(fill[4], 3));
        let code: [&[u8]; 8] = [
            &[0xc3],
            &[0x90, 0xc3],
            &[0x0f, 0x1f],
            &[0x0f, 0x1f, 0x44, 0x00],
            // endbr64, a hint with another operand, pause, prefixes of nothing.
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x0f, 0x1f, 0x08],
            &[0xf3, 0x90],
            &[0x66, 0x66],
        ];
        for bytes in code {
            assert!(!is_padding(bytes, bytes.len()), "{bytes:x?}");
        }
    }

    #[test]
    fn gaps_are_what_nothing_covers() {
        let text = |start, end| Text { name: String::new(), start, end };
        let text = [text(10, 20), text(20, 30), text(40, 50)];
        let spans = |spans: &[(u64, u64)]| spans.iter().map(|(start, end)| Span::new(*start, *end)).collect::<Vec<_>>();
        assert_eq!(gaps(&text, vec![]), spans(&[(10, 20), (20, 30), (40, 50)]));
        let taken = spans(&[(12, 14), (0, 11), (13, 22), (28, 45)]);
        assert_eq!(gaps(&text, taken), spans(&[(11, 12), (22, 28), (45, 50)]));
    }

    #[test]
    fn only_what_the_frame_pointer_would_be_used_for_is_marked() {
        let range = |start, end, choice| Range { start, end, choice };
        let mut ranges = vec![range(0, 10, Choice::Table), range(10, 30, Choice::FramePointer)];
        mark(&mut ranges, &[Span::new(8, 12), Span::new(20, 24), Span::new(28, 30)]);
        let (fp, padding) = (Choice::FramePointer, Choice::Padding);
        let wanted = [
            (0, 10, Choice::Table),
            (10, 12, padding),
            (12, 20, fp),
            (20, 24, padding),
            (24, 28, fp),
            (28, 30, padding),
        ];
        assert_eq!(ranges, wanted.map(|(start, end, choice)| range(start, end, choice)));
    }
}
