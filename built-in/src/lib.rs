//! The list of uu's own languages: those halves of its plugins that run outside of signal handlers. This is the one
//! place that names them all.
#![forbid(unsafe_code)]

use uunwind_language::Half;

/// The languages' crates, for their fuzz targets; `signal` in each is the half that runs in handlers.
pub use {
    uunwind_hotspot_analyse as hotspot, uunwind_lua_analyse as lua, uunwind_perl_analyse as perl,
    uunwind_php_analyse as php, uunwind_python_analyse as python, uunwind_ruby_analyse as ruby,
    uunwind_v8_analyse as v8,
};

/// One for each of uu's plugins. An object that several of them claim belongs to the plugin that was found first.
pub const HALVES: &[&dyn Half] = &[
    &uunwind_python_analyse::Python,
    &uunwind_lua_analyse::Lua,
    &uunwind_ruby_analyse::Ruby,
    &uunwind_v8_analyse::V8,
    &uunwind_hotspot_analyse::HotSpot,
    &uunwind_php_analyse::Php,
    &uunwind_perl_analyse::Perl,
];
