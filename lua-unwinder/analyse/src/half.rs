//! Lua's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::{analyse, Elf, Finding, Function, Range, Segment};
use object::elf::{PF_W, PF_X, PT_LOAD};
use uunwind_elf::Image;
use uunwind_language::{Half, Language, LineTable};

/// Functions of PUC Lua that only pass a call on. Functions that do a program's work, such as `luaH_resize`, are not
/// listed.
const GLUE: &[&str] = &[
    "luaD_call",
    "luaD_callnoyield",
    "luaD_pcall",
    "luaD_precall",
    "luaD_rawrunprotected",
    "luaT_callTM",
    "luaT_callTMres",
    "luaV_execute",
    "lua_call",
    "lua_callk",
    "lua_pcall",
    "lua_pcallk",
    "lua_resume",
];

/// Lua.
pub struct Lua;

impl Half for Lua {
    fn language(&self) -> Language {
        let glue = GLUE.iter().map(|name| (*name).to_owned()).collect();
        Language { glue, ..Language::unknown("lua") }
    }

    fn analyse(&self, image: &Image) -> uunwind_language::Finding {
        match analyse(&View(image)) {
            Finding::NotLua => uunwind_language::Finding::Unclaimed,
            Finding::Facts(bytes) => uunwind_language::Finding::Facts(bytes),
            Finding::Refused(why) => uunwind_language::Finding::Refused(why),
        }
    }

    /// The positions that the signal half emits are lines.
    fn line(&self, _: &LineTable<'_>, _: u64) -> Option<u32> {
        None
    }
}

struct View<'a>(&'a Image);

impl Elf for View<'_> {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.0.symbol(name).map(|(address, _)| address)
    }

    fn segments(&self) -> Vec<Segment> {
        let loaded = self.0.segments().iter().filter(|s| s.kind == PT_LOAD);
        let segment = |s: &uunwind_elf::Segment| Segment {
            range: Range { start: s.address, end: s.address.saturating_add(s.file_size) },
            executable: s.flags & PF_X != 0,
            writable: s.flags & PF_W != 0,
        };
        loaded.map(segment).collect()
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.0.read_address(address, out)
    }

    fn functions(&self) -> Vec<Function> {
        let functions = self.0.functions();
        let function = |f: uunwind_elf::Function| Function {
            range: Range { start: f.start, end: f.end },
            cfa_offset: f.cfa_offset,
        };
        functions.into_iter().map(function).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_signal_halfs() {
        assert_eq!(crate::NAME.split(|b| *b == 0).next(), Some(Lua.language().plugin.as_bytes()));
    }

    #[test]
    fn glue_goes_and_work_stays() {
        let lua = Lua.language();
        assert!(lua.is_glue("lua_pcallk") && lua.is_glue("luaD_call.part.0"));
        assert!(!lua.is_glue("luaH_resize") && !lua.is_glue("lua_callback"));
    }
}
