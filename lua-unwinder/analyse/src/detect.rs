//! Which Lua a file holds, by the strings that every build of it keeps in its read-only data: `_VERSION`, and where the
//! linker left it, the identification with the release.

use crate::{Elf, Range};
use memchr::memmem::Finder;

/// A PUC Lua.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// 1 to 5, as in 5.1.
    pub minor: u8,
    /// 6, as in 5.4.6; `None` where the file tells only the version.
    pub release: Option<u8>,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "5.{}", self.minor)?;
        self.release.map_or(Ok(()), |release| write!(f, ".{release}"))
    }
}

/// Which Lua.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lua {
    /// PUC Lua.
    Puc(Version),
    /// LuaJIT, of any version.
    LuaJit,
    /// A Lua with structures of its own.
    Fork(&'static str),
}

/// Read at once.
const CHUNK: u64 = 1 << 20;
/// A string that matters lies within so many bytes of its first byte and the one before.
const AROUND: usize = 64;
/// No more of a file is searched.
const LIMIT: u64 = 1 << 30;

/// What was seen so far.
#[derive(Default)]
struct Seen {
    luajit: bool,
    luau: bool,
    luau_loader: bool,
    ravi: bool,
    version: Option<u8>,
    release: Option<(u8, u8)>,
}

/// Looks through the read-only segments.
pub fn detect(elf: &dyn Elf) -> Option<Lua> {
    let mut seen = Seen::default();
    let finders = [Finder::new("Lua"), Finder::new("Ravi 5."), Finder::new("bytecode version mismatch (")];
    let mut left = LIMIT;
    for segment in elf.segments().iter().filter(|s| !s.writable) {
        chunks(elf, segment.range, &mut left, &mut |bytes, first| {
            for at in finders.iter().flat_map(|finder| finder.find_iter(bytes)).filter(|at| first || *at > 0) {
                let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(0);
                seen.string(before, bytes.get(at..).unwrap_or(&[]));
            }
        });
    }
    seen.verdict()
}

/// Shows the bytes of a range piece by piece; pieces overlap, so that no string is cut. `first`: nothing stands before it.
fn chunks(elf: &dyn Elf, range: Range, left: &mut u64, look: &mut dyn FnMut(&[u8], bool)) {
    let mut at = range.start;
    let mut buffer = Vec::new();
    while at < range.end && *left > 0 {
        let len = (range.end - at).min(CHUNK).min(*left);
        buffer.resize(len as usize, 0);
        if !elf.read(at, &mut buffer) {
            return;
        }
        look(&buffer, at == range.start);
        *left -= len;
        if len <= AROUND as u64 * 2 {
            return;
        }
        at = at.saturating_add(len - if at + len < range.end { AROUND as u64 } else { 0 });
    }
}

impl Seen {
    /// A string begins here; `before` is the byte before it.
    fn string(&mut self, before: u8, text: &[u8]) {
        let whole =
            |expected: &[u8]| before == 0 && text.strip_prefix(expected).is_some_and(|rest| rest.first() == Some(&0));
        if before == 0 {
            self.luajit |= text.starts_with(b"LuaJIT 2.");
            self.luau |= whole(b"Luau");
            self.ravi |= text.starts_with(b"Ravi 5.");
            for minor in 0..=9 {
                if whole(&[b'L', b'u', b'a', b' ', b'5', b'.', b'0' + minor]) {
                    self.version = Some(minor);
                }
            }
        }
        // In newer releases behind "%s: ".
        self.luau_loader |= matches!(before, 0 | b' ') && text.starts_with(b"bytecode version mismatch (");
        // `$LuaVersion: Lua 5.4.6  Copyright` and, in 5.1, `$Lua: Lua 5.1.5 Copyright`.
        for ident in [&b"LuaVersion: Lua 5."[..], b"Lua: Lua 5."] {
            if let (b'$', Some([minor @ b'0'..=b'9', b'.', release @ b'0'..=b'9', b' ', ..])) =
                (before, text.strip_prefix(ident))
            {
                self.release = Some((minor - b'0', release - b'0'));
            }
        }
    }

    fn verdict(&self) -> Option<Lua> {
        if self.luajit {
            return Some(Lua::LuaJit);
        }
        if self.ravi {
            return Some(Lua::Fork("Ravi"));
        }
        match (self.version, self.release) {
            // It keeps the identification of the release that it comes from, but not its `_VERSION`.
            (None, _) if self.luau && self.luau_loader => Some(Lua::Fork("Luau")),
            (_, Some((minor, release))) => Some(Lua::Puc(Version { minor, release: Some(release) })),
            (Some(minor), None) => Some(Lua::Puc(Version { minor, release: None })),
            (None, None) => None,
        }
    }
}
