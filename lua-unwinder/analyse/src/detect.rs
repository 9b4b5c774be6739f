//! Which Lua a file holds, by the strings that all builds of it have in their read-only data: `_VERSION`
//! (<https://github.com/lua/lua/blob/v5.4.0/lua.h>), and, if the linker kept it, `lua_ident` with the release
//! (<https://github.com/lua/lua/blob/v5.4.0/lapi.c>).

use memchr::memmem::Finder;
use uunwind_elf::{Elf, Span};

/// The version of a PUC Lua.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// The version's second number: 4 in 5.4.6.
    pub minor: u8,
    /// The release: 6 in 5.4.6; `None` if the file has only `_VERSION`.
    pub release: Option<u8>,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "5.{}", self.minor)?;
        self.release.map_or(Ok(()), |release| write!(f, ".{release}"))
    }
}

/// The Lua that a file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lua {
    /// PUC Lua.
    Puc(Version),
    /// LuaJIT, of any version.
    LuaJit,
    /// A Lua with structures of its own.
    Fork(&'static str),
}

/// Number of bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// Overlap of two chunks in bytes: more than the longest string that matters, with the byte before it.
const AROUND: usize = 64;
/// Limit of bytes of a file that are searched.
const LIMIT: u64 = 1 << 30;

/// The strings that were found so far.
#[derive(Default)]
struct Seen {
    luajit: bool,
    luau: bool,
    luau_loader: bool,
    /// Ravi's `_VERSION`.
    ravi: bool,
    /// What its precompiled code begins with.
    ravi_signature: bool,
    version: Option<u8>,
    release: Option<(u8, u8)>,
}

/// Searches the read-only segments. `None`: they name no Lua.
pub fn detect(elf: &dyn Elf) -> Option<Lua> {
    let mut seen = Seen::default();
    let finders = [Finder::new("Lua"), Finder::new("Ravi"), Finder::new("bytecode version mismatch (")];
    let mut left = LIMIT;
    for segment in elf.loaded().iter().filter(|s| !s.writable) {
        chunks(elf, segment.span, &mut left, &mut |bytes, first| {
            for at in finders.iter().flat_map(|finder| finder.find_iter(bytes)).filter(|at| first || *at > 0) {
                let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(0);
                seen.string(before, bytes.get(at..).unwrap_or(&[]));
            }
        });
    }
    seen.verdict()
}

/// Calls `look` with the bytes of a range, in chunks that overlap, so that no string is split; and with whether the
/// chunk is the first.
fn chunks(elf: &dyn Elf, range: Span, left: &mut u64, look: &mut dyn FnMut(&[u8], bool)) {
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
    /// Notes the string at the start of `text`, if it is one that matters. `before` is the byte before it.
    fn string(&mut self, before: u8, text: &[u8]) {
        let whole =
            |expected: &[u8]| before == 0 && text.strip_prefix(expected).is_some_and(|rest| rest.first() == Some(&0));
        if before == 0 {
            self.luajit |=
                text.strip_prefix(b"LuaJIT 2.").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
            self.luau |= whole(b"Luau");
            for minor in 0..=9 {
                if whole(&[b'L', b'u', b'a', b' ', b'5', b'.', b'0' + minor]) {
                    self.version = Some(minor);
                }
                self.ravi |= whole(&[b'R', b'a', b'v', b'i', b' ', b'5', b'.', b'0' + minor]);
            }
        }
        // `LUA_SIGNATURE` (<https://github.com/dibyendumajumdar/ravi/blob/master/include/lua.h>).
        self.ravi_signature |= before == 0x1b && text.starts_with(b"Ravi\0");
        // In newer releases "%s: " precedes it.
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

    /// The Lua that has these strings.
    fn verdict(&self) -> Option<Lua> {
        if self.luajit {
            return Some(Lua::LuaJit);
        }
        // Two strings: a program that looks for Ravi, as uu does, may hold either.
        if self.ravi && self.ravi_signature {
            return Some(Lua::Fork("Ravi"));
        }
        match (self.version, self.release) {
            // Luau has the `lua_ident` of the release that it derives from, but not its `_VERSION`.
            (None, _) if self.luau && self.luau_loader => Some(Lua::Fork("Luau")),
            (_, Some((minor, release))) => Some(Lua::Puc(Version { minor, release: Some(release) })),
            (Some(minor), None) => Some(Lua::Puc(Version { minor, release: None })),
            (None, None) => None,
        }
    }
}
