//! Frames in words.

use crate::sys::{Symbol, SYMBOL_CUT, SYMBOL_INLINED};
use crate::{library, steps, Error, Step};
use std::ffi::{c_char, CStr};
use std::fmt;
use std::path::PathBuf;
use uunwind_core::frame::{KIND_NATIVE, KIND_OMITTED, KIND_SEMANTIC, KIND_WINDOW};

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A machine frame, in a loaded object or in code that was not registered.
    Native,
    /// A function that the compiler inlined into the next frame, at the same address.
    Inlined,
    /// A machine frame in code that a JIT registered.
    Window,
    /// A frame of an interpreted language.
    Semantic,
    /// A mark: frames were left out here.
    Omitted(u32),
}

/// A function of a stack. Texts are empty, numbers `None`, where nothing is available.
///
/// ```
/// let stack = uunwind::Stack::capture()?;
/// let frames = stack.symbolize()?;
/// let leaf = frames.first().expect("this function");
/// assert!(leaf.kind == uunwind::Kind::Native && leaf.function.contains("main"));
/// assert!(leaf.word == 0 && leaf.start < leaf.address);
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The function, demangled.
    pub function: String,
    /// The source file.
    pub file: PathBuf,
    /// The line that executes.
    pub line: Option<u32>,
    /// Semantic frames: the language, by its plugin's name.
    pub language: String,
    /// Native frames: the file of the loaded object.
    pub object: PathBuf,
    /// Machine frames: the return address, or the interrupted instruction.
    pub address: Option<u64>,
    /// Process address of the function's first instruction, where its symbol is available.
    pub start: Option<u64>,
    /// The function's name or the file's was cut, because it is longer than its room.
    pub is_cut: bool,
    /// Index among the stack's words of the first word of its frame.
    pub word: usize,
    /// For people: why names or lines are missing.
    pub problem: String,
}

/// The functions of frame words.
pub fn symbolize(words: &[u64]) -> Result<Vec<Frame>, Error> {
    let api = library::get()?;
    let mut first: *const Symbol = std::ptr::null();
    // SAFETY: whole frames, and a place for the list.
    let result = unsafe { (api.symbolize)(words.as_ptr(), words.len(), &raw mut first) };
    Error::check("uu_symbolize", result)?;
    let mut frames = Vec::with_capacity(result as usize);
    let mut next = first;
    // SAFETY: the list is ours until it is given back below.
    while let Some(symbol) = unsafe { next.as_ref() } {
        frames.push(of_symbol(symbol, words));
        next = symbol.next;
    }
    // SAFETY: a list of uu_symbolize, which nothing points into any more.
    unsafe { (api.symbols_free)(first) };
    Ok(frames)
}

/// The frames without names, where the library cannot give them.
pub fn bare(words: &[u64]) -> Vec<Frame> {
    let empty = |step: Step<'_>| Frame {
        kind: step.kind().unwrap_or(Kind::Native),
        function: String::new(),
        file: PathBuf::new(),
        line: None,
        language: String::new(),
        object: PathBuf::new(),
        address: step.address(),
        start: None,
        is_cut: false,
        word: 0,
        problem: String::new(),
    };
    let mut frames: Vec<Frame> = Vec::new();
    let mut word = 0;
    for step in steps(words) {
        frames.push(Frame { word, ..empty(step) });
        word += step.words().len();
    }
    frames
}

fn of_symbol(symbol: &Symbol, words: &[u64]) -> Frame {
    let native = if symbol.flags & SYMBOL_INLINED != 0 { Kind::Inlined } else { Kind::Native };
    let omitted = || words.get(symbol.frame as usize).map_or(0, |word| *word as u32);
    let kind = match u8::try_from(symbol.kind) {
        Ok(KIND_WINDOW) => Kind::Window,
        Ok(KIND_SEMANTIC) => Kind::Semantic,
        Ok(KIND_OMITTED) => Kind::Omitted(omitted()),
        Ok(KIND_NATIVE) | Ok(_) | Err(_) => native,
    };
    Frame {
        kind,
        function: text(symbol.function),
        file: text(symbol.file).into(),
        line: (symbol.line != 0).then_some(symbol.line),
        language: text(symbol.language),
        object: text(symbol.object).into(),
        address: (symbol.address != 0).then_some(symbol.address),
        start: (symbol.start != 0).then_some(symbol.start),
        is_cut: symbol.flags & SYMBOL_CUT != 0,
        word: symbol.frame as usize,
        problem: text(symbol.problem),
    }
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a text of the library ends with a NUL, and stays as long as its list.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// One line for each function, one for its file and line.
pub fn write(frames: &[Frame], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (number, frame) in frames.iter().enumerate() {
        if let Kind::Omitted(count) = frame.kind {
            writeln!(f, "{number:4}: ({count} frames are left out here)")?;
            continue;
        }
        write!(f, "{number:4}: ")?;
        match (frame.function.as_str(), frame.address) {
            ("", Some(address)) => write!(f, "{address:#x}")?,
            ("", None) => write!(f, "(unnamed)")?,
            (function, _) => write!(f, "{function}")?,
        }
        match frame.kind {
            Kind::Semantic => write!(f, " [{}]", frame.language)?,
            Kind::Window => write!(f, " [jit]")?,
            Kind::Native if frame.file.as_os_str().is_empty() && !frame.object.as_os_str().is_empty() => {
                write!(f, " ({})", frame.object.display())?;
            }
            _ => {}
        }
        writeln!(f)?;
        if !frame.file.as_os_str().is_empty() {
            write!(f, "        at {}", frame.file.display())?;
            frame.line.map_or(Ok(()), |line| write!(f, ":{line}"))?;
            writeln!(f)?;
        }
    }
    Ok(())
}
