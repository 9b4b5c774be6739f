//! The structures' layout, per version. No table in the file describes them.

use crate::version::Version;
use std::mem::size_of;
use uunwind_perl::facts::{Facts, Plain, FACTS_VERSION};

/// The versions that are served, for messages.
pub fn served() -> &'static str {
    "5.36"
}

/// Facts with the layout of a version's structures, and no addresses. `None`: the version is not served.
pub fn of(version: Version) -> Option<Facts> {
    match (version.major, version.minor) {
        (5, 36) => Some(perl_5_36()),
        _ => None,
    }
}

/// `interpreter.Irunops`: the run loop that is called.
pub const RUNOPS: u32 = 0x8f0;
/// `xpvcv.xcv_root_u`, for a function in C: the function.
pub const XSUB: u32 = 48;

/// <https://github.com/Perl/perl5/blob/v5.36.0/intrpvar.h>, `cop.h`, `op.h`, `cv.h`, `gv.h`, `hv.h` and `sv.h` there,
/// with threads (`MULTIPLICITY`) and without `DEBUGGING`.
fn perl_5_36() -> Facts {
    let nothing = Facts::from_bytes(&[0; size_of::<Facts>()]).unwrap_or_else(|| unreachable!("as many bytes"));
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        interpreter_op: 8,
        interpreter_cop: 0xd0,
        interpreter_stack: 0xe0,
        interpreter_env: 0x2f8,
        interpreter_comparator: 0x3f8,
        interpreter_compiling: 0x790,
        stack_contexts: 8,
        stack_previous: 16,
        stack_index: 32,
        stack_type: 44,
        context_bytes: 104,
        context_cop: 16,
        context_return: 48,
        context_cv: 72,
        op_type: 32,
        op_parent: 8,
        cop_file: 48,
        nextstate: 195,
        require: 342,
        cv_stash: 32,
        cv_start: 40,
        cv_root: XSUB,
        cv_name: 56,
        cv_flags: 88,
        gp_egv: 56,
        gv_name: 32,
        gv_stash: 40,
        hv_name: 32,
        hv_name_count: 56,
        ..nothing
    }
}
