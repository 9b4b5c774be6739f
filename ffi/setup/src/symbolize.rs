//! `uu_symbolize`: frame words to functions, files and lines. Each object's file is read once a call, for all frames
//! that lie in it; nothing is kept afterwards.

use crate::{list, mapped};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{c_int, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::PathBuf;
use uunwind_built_in::HALVES;
use uunwind_core::errno::{EINVAL, EIO, ENOEXEC};
use uunwind_core::frame::{frame_words, KIND_NATIVE};
use uunwind_core::library::{Library, BUILD};
use uunwind_stacks::describe::{self, FrameInfo, EXACT};
use uunwind_stacks::symbol::{self, Describe, CUT, INLINED};
use uunwind_symbols::{look_up, table, Mapped, Symbol};

/// Words are no frame's.
#[derive(Debug, PartialEq, Eq)]
pub struct NoFrame;

/// What identifies an object: path, build-id.
type Object = (Vec<u8>, Vec<u8>);

/// What is found in one object: symbols by file address, and a remark; or why there are none.
struct Found {
    symbols: HashMap<u64, Symbol>,
    problem: String,
}

/// A frame, and the index of its first word.
struct Frame {
    index: u32,
    info: Box<FrameInfo>,
}

/// Looks up the functions of frames: `uu_symbolize` of `uu.h`. Returns how many symbols `*symbols` has, or a negative
/// errno.
///
/// # Safety
/// `library` must be a libuunwind's table of functions, `describe` its `uu_describe`; `frames` must be `words` words,
/// and `symbols` a place for a pointer.
#[no_mangle]
pub unsafe extern "C" fn uu_setup_symbolize(
    library: *const Library,
    describe: Describe,
    frames: *const u64,
    words: usize,
    symbols: *mut *const symbol::Symbol,
) -> i32 {
    // SAFETY: the caller passes its table and its arguments; size and build are checked before anything else is read.
    let (library, words) =
        unsafe { (&*library, if words == 0 { &[][..] } else { std::slice::from_raw_parts(frames, words) }) };
    if library.size as usize != size_of::<Library>() || library.build != BUILD {
        return -ENOEXEC;
    }
    match catch_unwind(|| symbolize(words, describe)) {
        Ok(Ok(entries)) => {
            let count = i32::try_from(entries.len()).unwrap_or(i32::MAX);
            // SAFETY: the caller's place.
            unsafe { *symbols = list::make(entries) };
            count
        }
        Ok(Err(NoFrame)) => -EINVAL,
        Err(_) => -EIO,
    }
}

/// Gives a list of [`uu_setup_symbolize`] back.
///
/// # Safety
/// `symbols` must be null or such a list, given back once only.
#[no_mangle]
pub unsafe extern "C" fn uu_setup_symbols_free(symbols: *const symbol::Symbol) {
    // SAFETY: passed on.
    unsafe { list::free(symbols) }
}

/// One or more symbols for each frame, in the order of the frames; inlined functions come before what contains them.
pub fn symbolize(words: &[u64], describe: Describe) -> Result<Vec<list::Entry>, NoFrame> {
    let frames = described(words, describe)?;
    let mut wanted: BTreeMap<Object, BTreeSet<u64>> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| is_in_object(&frame.info)) {
        wanted.entry(object(&frame.info)).or_default().insert(lookup(&frame.info));
    }
    let found: BTreeMap<Object, Found> = wanted
        .into_iter()
        .map(|(object, addresses)| {
            let found = in_object(&object, addresses.into_iter().collect(), &frames);
            (object, found)
        })
        .collect();
    Ok(frames.iter().flat_map(|frame| entries(frame, &found)).collect())
}

/// Every frame, as `uu_describe` describes it.
fn described(words: &[u64], describe: Describe) -> Result<Vec<Frame>, NoFrame> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(first) = words.get(at) {
        let rest = words.get(at..).unwrap_or_default();
        if rest.len() < frame_words(*first) {
            return Err(NoFrame);
        }
        let mut info = Box::new(FrameInfo::EMPTY);
        // SAFETY: all words of the frame are there, and `info` has its size.
        let used: c_int = unsafe { describe(rest.as_ptr(), &raw mut *info) };
        let used = usize::try_from(used).ok().filter(|used| *used > 0).ok_or(NoFrame)?;
        frames.push(Frame { index: u32::try_from(at).map_err(|_| NoFrame)?, info });
        at += used;
    }
    Ok(frames)
}

fn is_in_object(info: &FrameInfo) -> bool {
    info.kind == u32::from(KIND_NATIVE) && !text(&info.file).is_empty()
}

fn object(info: &FrameInfo) -> Object {
    let id = info.build_id.get(..info.build_id_len as usize).unwrap_or(&info.build_id);
    (text(&info.file).to_vec(), id.to_vec())
}

/// The file address to look up: a return address belongs to the call that precedes it.
fn lookup(info: &FrameInfo) -> u64 {
    info.file_address.wrapping_sub(u64::from(info.flags & EXACT == 0))
}

/// The bytes of a text before its NUL.
fn text(bytes: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes)
}

fn in_object((path, build_id): &Object, addresses: Vec<u64>, frames: &[Frame]) -> Found {
    if let Some(image) = mapped::vdso().filter(|_| path == mapped::VDSO) {
        return in_image(image, &addresses);
    }
    let path = PathBuf::from(OsStr::from_bytes(path));
    let of_this = |frame: &&Frame| is_in_object(&frame.info) && text(&frame.info.file) == path.as_os_str().as_bytes();
    let address = frames.iter().find(of_this).map_or(0, |frame| frame.info.address);
    let headers_key = if build_id.is_empty() { mapped::headers_key(address.wrapping_sub(1)) } else { 0 };
    // A program whose file was removed or replaced is there still.
    let program = std::fs::read_link(mapped::PROGRAM).is_ok_and(|program| program == path);
    let files = if program { vec![path, PathBuf::from(mapped::PROGRAM)] } else { vec![path] };
    match look_up(&Mapped { build_id, headers_key, files: &files, folders: &[], kept: None }, &addresses, HALVES) {
        Ok(answer) => Found {
            symbols: answer.symbols.into_iter().map(|symbol| (symbol.address, symbol)).collect(),
            problem: answer.remark.unwrap_or_default(),
        },
        Err(problem) => Found { symbols: HashMap::new(), problem },
    }
}

/// Names from an object in memory, by its symbols.
fn in_image(image: &[u8], addresses: &[u64]) -> Found {
    match table::in_image(image, addresses) {
        Ok(named) => {
            let symbol = |(address, named): (&u64, table::Named)| {
                let (start, name) = named?;
                Some((*address, Symbol { address: *address, start, name, ..Symbol::default() }))
            };
            Found { symbols: addresses.iter().zip(named).filter_map(symbol).collect(), problem: String::new() }
        }
        Err(problem) => Found { symbols: HashMap::new(), problem },
    }
}

/// The symbols of one frame: always at least one.
fn entries(frame: &Frame, found: &BTreeMap<Object, Found>) -> Vec<list::Entry> {
    let info = &*frame.info;
    let bare = list::Entry {
        kind: info.kind,
        frame: frame.index,
        address: info.address,
        language: list::text(text(&info.language)),
        ..list::Entry::default()
    };
    if !is_in_object(info) {
        let (function, file) = (list::text(text(&info.function)), list::text(text(&info.file)));
        let flags = if info.flags & describe::CUT != 0 { CUT } else { 0 };
        return vec![list::Entry { function, file, line: info.line, flags, ..bare }];
    }
    let object = object(info);
    let found = found.get(&object);
    let problem = found.map_or("", |found| &*found.problem);
    let bare = list::Entry { object: list::text(&object.0), problem: list::text(problem.as_bytes()), ..bare };
    let Some(symbol) = found.and_then(|found| found.symbols.get(&lookup(info))) else { return vec![bare] };
    let inlined = symbol.inlined.iter().map(|inlined| list::Entry {
        function: list::text(inlined.name.as_bytes()),
        file: list::text(inlined.file.as_bytes()),
        line: inlined.line,
        flags: INLINED,
        ..bare.clone()
    });
    let bias = info.address.wrapping_sub(info.file_address);
    let whole = list::Entry {
        function: list::text(symbol.name.as_bytes()),
        file: list::text(symbol.file.as_bytes()),
        line: symbol.line,
        start: if symbol.start == 0 { 0 } else { symbol.start.wrapping_add(bias) },
        ..bare.clone()
    };
    inlined.chain([whole]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::frame::{semantic_word, KIND_SEMANTIC};

    /// A description of a function whose name is longer than its room, and of one whose name is not.
    unsafe extern "C" fn describes(words: *const u64, info: *mut FrameInfo) -> c_int {
        // SAFETY: `symbolize` passes a frame's words, and a place.
        let (word, info) = unsafe { (*words, &mut *info) };
        info.kind = KIND_SEMANTIC.into();
        info.flags = if word == semantic_word(1, 1) { describe::CUT } else { 0 };
        2
    }

    #[test]
    fn texts_that_were_cut_are_marked() {
        let words = [semantic_word(1, 1), 0, semantic_word(1, 2), 0];
        let entries = symbolize(&words, describes).expect("frames");
        assert_eq!(entries.iter().map(|entry| entry.flags).collect::<Vec<_>>(), [CUT, 0]);
    }
}
