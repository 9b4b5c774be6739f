//! The structures of `uu_plugin.h` that differ from CPU to CPU: what a C compiler for AArch64 makes of them is what the
//! core has. The test writes a file of assertions, which `ci/aarch64` has the C compiler check: it says in
//! UU_AARCH64_CHAINS where.
#![cfg(target_arch = "aarch64")]

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use uunwind_core::plugin::{CRule, Caller, View};
use uunwind_core::regs::aarch64::{COUNT, FP, RA, SP};
use uunwind_core::rule::aarch64::RA_SLOT;

macro_rules! assertions {
    ($text:ident, $rust:ty as $c:literal { $($field:ident = $c_field:literal),* $(,)? }) => {
        let _ = writeln!($text, "_Static_assert(sizeof(struct {}) == {}, \"\");", $c, size_of::<$rust>());
        $(let _ = writeln!($text, "_Static_assert(offsetof(struct {}, {}) == {}, \"\");", $c, $c_field,
                           offset_of!($rust, $field));)*
    };
}

#[test]
fn structures_are_the_cores() {
    let Some(folder) = std::env::var_os("UU_AARCH64_CHAINS") else {
        println!("skipped: the header for AArch64: UU_AARCH64_CHAINS is not set (ci/aarch64 sets it)");
        return;
    };
    let mut text = String::from("#include <stddef.h>\n#include \"uu_plugin.h\"\n");
    for (name, value) in [
        ("UU_REGISTERS", COUNT),
        ("UU_FP", usize::from(FP)),
        ("UU_LR", usize::from(RA)),
        ("UU_SP", usize::from(SP)),
        ("UU_RULE_SLOTS", RA_SLOT + 1),
    ] {
        let _ = writeln!(text, "_Static_assert({name} == {value}, \"\");");
    }
    assertions!(text, View as "uu_view" {
        pc = "pc", registers = "registers", known = "known", plugin = "plugin", facts = "facts", walk = "walk",
        caller = "caller", used = "used", stack_len = "stack_len",
    });
    assertions!(text, Caller as "uu_caller" { pc = "pc", registers = "registers", known = "known", exact = "exact" });
    assertions!(text, CRule as "uu_rule" {
        kind = "kind", register = "reg", offset = "offset", addend = "addend", slots = "slots", reserved2 = "reserved2",
    });
    std::fs::write(Path::new(&folder).join("layout.c"), text).expect("the folder is there");
}
