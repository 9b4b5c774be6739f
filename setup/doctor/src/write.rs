//! Pieces as an SFrame section for AMD64, version 2 (with errata 1 and 2) or 3.
//!
//! A function that SFrame can express only in part gets a descriptor for each part that it can, so nothing is lost with
//! it; what it cannot express is listed. Blocks of equal code (PLT) become one descriptor.

use super::eh_frame::is_plain;
use super::unwind_row::{Piece, FP, SP};
use uunwind_sframe::row::{Base, Location, Unwind};

/// Versions that can be written.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 2..=3;
/// Most rows of a descriptor: version 3 counts them in 16 bits.
const MOST_ROWS: usize = 60_000;
/// Farthest that version 2 reaches, with room for the section itself.
const REACH: u64 = (1 << 31) - (1 << 28);
/// Sizes of PLT entries.
const BLOCKS: [u64; 2] = [16, 8];

/// A range that the section does not describe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beyond {
    /// First address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// What SFrame, or this version of it, has no words for.
    pub why: &'static str,
}

/// An SFrame section that was made, and what it could not express.
#[derive(Default, Debug)]
pub struct Written {
    /// The section's contents, header included.
    pub bytes: Vec<u8>,
    /// Function descriptors in it.
    pub functions: usize,
    /// Rows in it.
    pub rows: usize,
    /// What it does not express.
    pub beyond: Vec<Beyond>,
}

/// A row's data words, before their size is chosen.
struct Row {
    start: u64,
    words: Words,
}

#[derive(Clone, PartialEq)]
enum Words {
    /// Base register is the frame pointer; offsets.
    Plain(bool, Vec<i64>),
    /// Control words and offsets.
    Flexible(Vec<i64>),
    Outermost,
}

struct Descriptor {
    start: u64,
    size: u64,
    rows: Vec<Row>,
    block: u8,
    signal: bool,
}

/// Writes the section that will lie at `address`. Pieces must be sorted and without overlaps.
pub fn section(pieces: &[Piece], version: u8, address: u64) -> Written {
    let mut written = Written::default();
    let mut descriptors: Vec<Descriptor> = Vec::new();
    let mut run: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let Some(why) = beyond(piece, version, address) {
            match written.beyond.last_mut().filter(|last| last.end == piece.start && last.why == why) {
                Some(last) => last.end = piece.end,
                None => written.beyond.push(Beyond { start: piece.start, end: piece.end, why }),
            }
            continue;
        }
        let goes_on = |last: &Piece| last.end == piece.start && last.function == piece.function;
        if !run.last().is_some_and(goes_on) || run.len() >= MOST_ROWS {
            describe(&run, &mut descriptors);
            run.clear();
        }
        match run.last_mut().filter(|last| last.rule == piece.rule) {
            Some(last) => last.end = piece.end,
            None => run.push(*piece),
        }
    }
    describe(&run, &mut descriptors);
    written.functions = descriptors.len();
    written.rows = descriptors.iter().map(|d| d.rows.len()).sum();
    written.bytes = encode(&descriptors, version, address);
    written
}

fn beyond(piece: &Piece, version: u8, address: u64) -> Option<&'static str> {
    let rule = match piece.rule {
        Ok(rule) => rule,
        Err(why) => return Some(why),
    };
    if version == 2 && piece.start.abs_diff(address) > REACH {
        return Some("farther than 2 GiB from the section (version 3 reaches it)");
    }
    if version == 2 && piece.signal {
        return Some("a signal frame (version 3 has them)");
    }
    let Unwind::Caller { cfa, ra, fp } = rule else { return None };
    let offsets = [Some(cfa), ra, fp];
    if offsets.into_iter().flatten().any(|l| i32::try_from(l.offset).is_err()) {
        return Some("an offset of more than 32 bits");
    }
    if offsets.into_iter().flatten().any(|l| matches!(l.base, Base::Register(n) if n > 15)) {
        return Some("a register that is not a general one");
    }
    if [ra, fp].into_iter().flatten().any(|l| l.base == Base::Cfa && !l.deref) {
        return Some("a register that is an address on the stack");
    }
    if version > 2 {
        return None;
    }
    (!is_default(&cfa, ra, fp)).then_some("another base register, or a word there (version 3 has them)")
}

/// The content of a row of the plain kind.
fn is_default(cfa: &Location, ra: Option<Location>, fp: Option<Location>) -> bool {
    is_plain(cfa) && ra == Some(below_cfa()) && fp.is_none_or(|fp| fp.base == Base::Cfa)
}

fn below_cfa() -> Location {
    Location { base: Base::Cfa, offset: -8, deref: true }
}

/// Descriptors for one run of pieces without gaps, of one function.
fn describe(run: &[Piece], out: &mut Vec<Descriptor>) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let blocks = run.iter().enumerate().skip(1).take(4).chain([(0, first)]).find_map(|(index, piece)| {
        let (rows, block) = BLOCKS.iter().find_map(|block| Some((repeats(&run[index..], *block)?, *block)))?;
        Some((index, piece.start, rows, block))
    });
    let whole = match blocks {
        Some((index, start, rows, block)) => {
            let mut descriptor = plain(&run[index..index + rows], start, last.end);
            descriptor.block = block as u8;
            describe_whole(&run[..index], out);
            out.push(descriptor);
            return;
        }
        None => run,
    };
    describe_whole(whole, out);
}

fn describe_whole(run: &[Piece], out: &mut Vec<Descriptor>) {
    if let (Some(first), Some(last)) = (run.first(), run.last()) {
        out.push(plain(run, first.start, last.end));
    }
}

/// Rows of one block, if the run is three or more blocks of this size, all alike.
fn repeats(run: &[Piece], block: u64) -> Option<usize> {
    let (first, last) = (run.first()?, run.last()?);
    let len = last.end - first.start;
    if len % block != 0 || len / block < 3 || first.signal {
        return None;
    }
    let rows = run.iter().take_while(|p| p.start < first.start + block).count();
    let alike = |(n, piece): (usize, &Piece)| {
        let model = &run[n % rows];
        let offset = (n / rows) as u64 * block;
        piece.rule == model.rule && piece.start == model.start + offset && piece.end == model.end + offset
    };
    let count = rows as u64 * (len / block);
    (rows > 1 && run.len() as u64 == count && run.iter().enumerate().all(alike)).then_some(rows)
}

fn plain(run: &[Piece], start: u64, end: u64) -> Descriptor {
    let flexible = run.iter().any(|piece| match piece.rule {
        Ok(Unwind::Caller { cfa, ra, fp }) => !is_default(&cfa, ra, fp),
        _ => false,
    });
    let words = |piece: &Piece| match piece.rule {
        Ok(Unwind::Caller { cfa, ra, fp }) if flexible => Words::Flexible(pairs(&cfa, ra, fp)),
        Ok(Unwind::Caller { cfa, fp, .. }) => {
            let offsets = std::iter::once(cfa.offset).chain(fp.map(|fp| fp.offset)).collect();
            Words::Plain(cfa.base == Base::Register(FP), offsets)
        }
        _ => Words::Outermost,
    };
    let rows = run.iter().map(|piece| Row { start: piece.start - start, words: words(piece) }).collect();
    Descriptor { start, size: end - start, rows, block: 0, signal: run.first().is_some_and(|p| p.signal) }
}

fn pairs(cfa: &Location, ra: Option<Location>, fp: Option<Location>) -> Vec<i64> {
    let pair = |l: &Location| {
        let register = match l.base {
            Base::Register(n) => i64::from(n) << 3 | 1,
            _ => 0,
        };
        [register | i64::from(l.deref) << 1, l.offset]
    };
    let mut words = pair(cfa).to_vec();
    match ra.filter(|ra| *ra != below_cfa()) {
        Some(ra) => words.extend(pair(&ra)),
        // A single zero: the return address is where it always is.
        None if fp.is_some() => words.push(0),
        None => {}
    }
    words.extend(fp.iter().flat_map(pair));
    words
}

fn encode(descriptors: &[Descriptor], version: u8, address: u64) -> Vec<u8> {
    let (mut index, mut rows) = (Vec::new(), Vec::new());
    for descriptor in descriptors {
        let field = address + 28 + index.len() as u64;
        let start = descriptor.start.wrapping_sub(field) as i64;
        let start_size = match descriptor.size {
            0..=0xff => 0u8,
            0x100..=0xffff => 1,
            _ => 2,
        };
        let flexible = descriptor.rows.iter().any(|row| matches!(row.words, Words::Flexible(_)));
        let mask = u8::from(descriptor.block != 0) << 4;
        let info = start_size | mask | u8::from(descriptor.signal) << 7;
        let (size, at, count) = (descriptor.size as u32, rows.len() as u32, descriptor.rows.len());
        if version == 2 {
            index.extend((start as i32).to_le_bytes());
            [size, at, count as u32].iter().for_each(|n| index.extend(n.to_le_bytes()));
            index.extend([info, descriptor.block, 0, 0]);
        } else {
            index.extend(start.to_le_bytes());
            [size, at].iter().for_each(|n| index.extend(n.to_le_bytes()));
            rows.extend((count as u16).to_le_bytes());
            rows.extend([info, u8::from(flexible), descriptor.block]);
        }
        descriptor.rows.iter().for_each(|row| put_row(row, start_size, &mut rows));
    }
    let mut bytes = vec![0xe2, 0xde, version, 0x05, 3, 0, 0xf8, 0];
    let total: usize = descriptors.iter().map(|d| d.rows.len()).sum();
    for n in [descriptors.len(), total, rows.len(), 0, index.len()] {
        bytes.extend((n as u32).to_le_bytes());
    }
    bytes.extend(index);
    bytes.extend(rows);
    bytes
}

fn put_row(row: &Row, start_size: u8, out: &mut Vec<u8>) {
    out.extend(row.start.to_le_bytes().iter().take(1 << start_size));
    let (base, words): (u8, &[i64]) = match &row.words {
        Words::Plain(from_fp, words) => (u8::from(!from_fp), words),
        Words::Flexible(words) => (0, words),
        Words::Outermost => (0, &[]),
    };
    // One size for all words of a row, the largest that is needed.
    let size = words
        .iter()
        .map(|w| [i64::from(i8::MAX), i64::from(i16::MAX)].iter().filter(|m| *w > **m || *w < -**m - 1).count());
    let size = size.max().unwrap_or(0);
    out.push(base | (words.len() as u8) << 1 | (size as u8) << 5);
    words.iter().for_each(|word| out.extend(word.to_le_bytes().iter().take(1 << size)));
}

const _: () = assert!(SP == 7 && FP == 6);
