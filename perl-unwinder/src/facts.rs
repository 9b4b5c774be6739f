//! The facts: what the analyse half found out for the signal half about one Perl.
//!
//! Addresses are file addresses (the load bias is to be added). Offsets are in bytes from the start of the structure
//! that the field's prefix names. Each comment gives Perl's name of the field; ASSUMPTIONS.md lists the source files.

use core::mem::size_of;
pub use uunwind_core::plugin::guest::{Extent, Plain};

/// Version of this layout.
pub const FACTS_VERSION: u32 = 3;

/// Number of places in [`Facts::sites`].
pub const SITES: usize = 16;
/// Number of places in [`Facts::xsubs`].
pub const XSUBS: usize = 8;
/// Number of ranges in [`Facts::pushing`].
pub const PUSHING: usize = 64;
/// Number of ranges in each other list.
pub const RANGES: usize = 8;
/// Limit of all offsets in structures, in bytes.
const LARGEST: u32 = 8192;

/// A place that runs the program: the outermost context is the first of its arrays.
pub const MAIN: u32 = 1;
/// A place that calls a sub: the outermost context is a sub's without an op to return to.
pub const SUB: u32 = 2;
/// A place that evaluates text, or computes a constant: the outermost context is an eval's without an op to return to.
pub const EVAL: u32 = 3;
/// A place that catches exceptions for the run loop around it: this goes on with the same contexts.
pub const NESTED: u32 = 4;
/// A place that runs a `defer` or `finally` block: the outermost context is of that type.
pub const DEFER: u32 = 5;
/// A place that runs a comparator of `sort`: the outermost context is the first of an array of that type.
pub const SORT: u32 = 6;
/// A place that runs code in a regular expression: the outermost context says so.
pub const REGEX: u32 = 7;
/// A place in another object: the outermost context is a sub's that is called many times (`MULTICALL`).
pub const FOREIGN: u32 = 8;

uunwind_core::plain! {
    /// A place from which run loops are called.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Site {
        /// File address after the call; 0: unused.
        pub after: u64,
        /// One of the numbers of above.
        pub class: u32,
        /// Zero.
        pub unused: u32,
    }
}

uunwind_core::plain! {
    /// A place from which functions in C are called for Perl code.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Xsub {
        /// File address after the call; 0: unused.
        pub after: u64,
        /// DWARF number of the callee-saved register with the sub.
        pub cv: u32,
        /// DWARF number of the callee-saved register with the interpreter.
        pub interpreter: u32,
    }
}

uunwind_core::plain! {
    /// Facts of one object.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// Perl's version: a byte each for its three numbers, from the third lowest byte on.
        pub perl: u32,
        /// DWARF number of the register in which `Perl_runops_standard` keeps the interpreter.
        pub interpreter_register: u32,

        /// `Perl_runops_standard`: the run loop.
        pub runops: Extent,
        /// File address after the instruction that loads that register from the first argument.
        pub runops_entered: u64,
        /// File address after the call of an op.
        pub runops_called: u64,
        /// Whence run loops are called.
        pub sites: [Site; SITES],
        /// Whence functions in C are called.
        pub xsubs: [Xsub; XSUBS],

        /// Where a context was made and is not filled in yet, or is the one of a sub that does not run yet. Two zeros:
        /// no more, as in all lists.
        pub pushing: [Extent; PUSHING],
        /// The end of `Perl_pp_entersub`, with the next op in rax.
        pub returning: [Extent; RANGES],
        /// Functions that remove a sub's context after its function.
        pub popping: [Extent; RANGES],
        /// Functions in which the innermost contexts and the line belong to different moments.
        pub unsure: [Extent; RANGES],
        /// `Perl_pp_sort`.
        pub sort: Extent,
        /// The functions that call its comparators.
        pub comparing: [Extent; RANGES],
        /// The function that runs code in regular expressions.
        pub regex: Extent,
        /// `Perl_call_sv`.
        pub call_sv: Extent,
        /// `Perl_eval_sv`.
        pub eval_sv: Extent,

        /// `interpreter.Iop`.
        pub interpreter_op: u32,
        /// `interpreter.Icurcop`.
        pub interpreter_cop: u32,
        /// `interpreter.Icurstackinfo`.
        pub interpreter_stack: u32,
        /// `interpreter.Itop_env`; a `JMPENV` begins with the address of the one around it.
        pub interpreter_env: u32,
        /// `interpreter.Isortcop`: the first op of the comparator.
        pub interpreter_comparator: u32,
        /// `interpreter.Icompiling`.
        pub interpreter_compiling: u32,

        /// `PERL_SI.si_cxstack`.
        pub stack_contexts: u32,
        /// `PERL_SI.si_prev`.
        pub stack_previous: u32,
        /// `PERL_SI.si_cxix` (32 bits, signed).
        pub stack_index: u32,
        /// `PERL_SI.si_type` (32 bits).
        pub stack_type: u32,

        /// `sizeof(PERL_CONTEXT)`.
        pub context_bytes: u32,
        /// `block.blku_oldcop`.
        pub context_cop: u32,
        /// `block_sub.retop`, and that of `block_eval` and `block_format`.
        pub context_return: u32,
        /// `block_sub.cv`.
        pub context_cv: u32,

        /// `op.op_type` (the lowest 9 bits of 16); the 64 bits from it on end with `cop_line`.
        pub op_type: u32,
        /// `op.op_sibparent`.
        pub op_parent: u32,
        /// `cop.cop_file`.
        pub cop_file: u32,
        /// `OP_NEXTSTATE`; `OP_DBSTATE` is the next number.
        pub nextstate: u32,
        /// `OP_REQUIRE`; `OP_DOFILE` is the next number.
        pub require: u32,

        /// `xpvcv.xcv_stash`.
        pub cv_stash: u32,
        /// `xpvcv.xcv_start_u`.
        pub cv_start: u32,
        /// `xpvcv.xcv_root_u`.
        pub cv_root: u32,
        /// `xpvcv.xcv_gv_u`.
        pub cv_name: u32,
        /// `xpvcv.xcv_flags`, the higher half of a word.
        pub cv_flags: u32,
        /// `gp.gp_egv`.
        pub gp_egv: u32,
        /// `xpvgv.xiv_u`: the name.
        pub gv_name: u32,
        /// `xpvgv.xnv_u`: the stash.
        pub gv_stash: u32,
        /// `xpvhv_aux.xhv_name_u`, from the start of `xpvhv_with_aux`, or of `xpvhv_aux` itself.
        pub hv_name: u32,
        /// `xpvhv_aux.xhv_name_count`, the higher half of a word, from there, too.
        pub hv_name_count: u32,
        /// `xpvhv.xhv_max`, where `xpvhv_aux` lies after the array of that many pointers and one more (before Perl
        /// 5.36); 0: it is in the body, `xpvhv_with_aux`.
        pub hv_max: u32,
    }
}

impl Facts {
    /// The facts that these bytes are, in place. `None` if they are cut short, not aligned, of another version, or hold
    /// what cannot be. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<&Facts> {
        Facts::view(bytes).filter(|facts| facts.plausible())
    }

    fn plausible(&self) -> bool {
        let offsets = [
            self.interpreter_op,
            self.interpreter_cop,
            self.interpreter_stack,
            self.interpreter_env,
            self.interpreter_compiling,
            self.interpreter_comparator,
            self.stack_contexts,
            self.stack_previous,
            self.stack_index,
            self.stack_type,
            self.op_type,
            self.op_parent,
            self.cop_file,
            self.cv_stash,
            self.cv_start,
            self.cv_root,
            self.cv_name,
            self.cv_flags,
            self.gp_egv,
            self.gv_name,
            self.gv_stash,
            self.hv_name,
            self.hv_name_count,
            self.hv_max,
        ];
        let in_context = [self.context_cop, self.context_return, self.context_cv];
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && self.interpreter_register < 16
            && self.xsubs.iter().all(|place| place.cv < 16 && place.interpreter < 16)
            && self.sites.iter().all(|site| site.class <= FOREIGN)
            && (16..=1024).contains(&self.context_bytes)
            && in_context.iter().all(|offset| offset.checked_add(8).is_some_and(|end| end <= self.context_bytes))
            && offsets.iter().all(|offset| *offset <= LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_bad_ones_are_refused() {
        let mut facts = Facts::from_bytes(&[0; size_of::<Facts>()]).expect("as many bytes");
        facts.size = size_of::<Facts>() as u32;
        facts.version = FACTS_VERSION;
        facts.context_bytes = 104;
        assert_eq!(Facts::read(facts.as_bytes()), Some(&facts));
        assert_eq!(Facts::read(facts.as_bytes().get(8..).unwrap_or(&[])), None, "cut");
        for spoil in [
            |f: &mut Facts| f.version += 1,
            |f: &mut Facts| f.size -= 4,
            |f: &mut Facts| f.interpreter_register = 16,
            |f: &mut Facts| f.xsubs[1].cv = 16,
            |f: &mut Facts| f.sites[3].class = 9,
            |f: &mut Facts| f.context_bytes = 0,
            |f: &mut Facts| f.context_cv = 100,
            |f: &mut Facts| f.context_return = u32::MAX,
            |f: &mut Facts| f.cop_file = 1 << 20,
        ] {
            let mut bad = facts;
            spoil(&mut bad);
            assert_eq!(Facts::read(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
