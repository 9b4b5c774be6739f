//! The structures' layout, per version. No table in the file describes them.

use crate::version::Version;
use std::mem::size_of;
use uunwind_perl::facts::{Facts, Plain, FACTS_VERSION};

/// What a version determines.
pub struct Layout {
    /// Facts with the layout of the structures, and no addresses.
    pub facts: Facts,
    /// `interpreter.Irunops`: the run loop that is called.
    pub runops: u32,
}

/// The versions that are served, for messages.
pub fn served() -> &'static str {
    "5.32, 5.36, 5.40 and 5.42"
}

/// The layout of a version's structures. `None`: the version is not served.
pub fn of(version: Version) -> Option<Layout> {
    match (version.major, version.minor) {
        (5, 32) => Some(perl_5_32()),
        (5, 36) => Some(perl_5_36()),
        (5, 40) => Some(perl_5_40()),
        (5, 42) => Some(perl_5_42()),
        _ => None,
    }
}

/// `xpvcv.xcv_root_u`, for a function in C: the function.
pub const XSUB: u32 = 48;

/// <https://github.com/Perl/perl5/blob/v5.36.0/intrpvar.h>, `cop.h`, `op.h`, `cv.h`, `gv.h`, `hv.h` and `sv.h` there,
/// with threads (`MULTIPLICITY`) and without `DEBUGGING`.
fn perl_5_36() -> Layout {
    let nothing = Facts::from_bytes(&[0; size_of::<Facts>()]).unwrap_or_else(|| unreachable!("as many bytes"));
    let facts = Facts {
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
    };
    Layout { facts, runops: 0x8f0 }
}

/// The same headers of v5.32.1: a hash's name lies behind its array.
fn perl_5_32() -> Layout {
    const NEWER: u32 = 0x10;
    let Layout { facts, runops } = perl_5_36();
    let facts = Facts {
        interpreter_cop: facts.interpreter_cop + NEWER,
        interpreter_stack: facts.interpreter_stack + NEWER,
        interpreter_env: facts.interpreter_env + NEWER,
        interpreter_comparator: facts.interpreter_comparator + NEWER,
        interpreter_compiling: facts.interpreter_compiling + NEWER,
        hv_name: 0,
        hv_name_count: 24,
        hv_max: 24,
        ..facts
    };
    Layout { facts, runops: runops + NEWER }
}

/// The same headers of v5.40.1.
fn perl_5_40() -> Layout {
    let facts = Facts {
        interpreter_env: 0x308,
        interpreter_comparator: 0x408,
        interpreter_compiling: 0x6b8,
        nextstate: 198,
        require: 345,
        ..perl_5_36().facts
    };
    Layout { facts, runops: 0x818 }
}

/// The same headers of v5.42.3.
fn perl_5_42() -> Layout {
    let Layout { facts, runops } = perl_5_40();
    Layout { facts: Facts { nextstate: 202, require: 349, ..facts }, runops }
}
