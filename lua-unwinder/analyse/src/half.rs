//! Lua's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::analyse;
use uunwind_elf::Image;
use uunwind_language::{Finding, Half, Language, LineTable};

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

    fn analyse(&self, image: &Image) -> Finding {
        analyse(image)
    }

    /// The positions that the signal half emits are lines.
    fn line(&self, _: &LineTable<'_>, _: u64) -> Option<u32> {
        None
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
