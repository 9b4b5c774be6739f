//! The structures' layout, per version. No table in the file describes them.

use crate::version::Version;
use std::mem::size_of;
use uunwind_ruby::facts::{Facts, Plain, FACTS_VERSION, STRINGS_BY_FLAGS, STRINGS_BY_WORD};

/// The versions that are served, for messages.
pub fn served() -> &'static str {
    "3.1 and 3.3"
}

/// Facts with the layout of a version's structures, and no addresses. `None`: the version is not served.
pub fn of(version: Version) -> Option<Facts> {
    match (version.major, version.minor) {
        (3, 1) => Some(ruby_3_1()),
        (3, 3) => Some(ruby_3_3()),
        _ => None,
    }
}

/// <https://github.com/ruby/ruby/blob/v3_1_2/vm_core.h>, `method.h`, `iseq.h`, `symbol.c` and `internal/class.h` there.
fn ruby_3_1() -> Facts {
    let nothing = Facts::from_bytes(&[0; size_of::<Facts>()]).unwrap_or_else(|| unreachable!("as many bytes"));
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        ec_stack: 0,
        ec_stack_size: 8,
        ec_frame: 0x10,
        ec_tag: 0x18,
        tag_previous: 0x38,
        tag_state: 0x40,
        frame_bytes: 0x40,
        frame_pc: 0,
        frame_iseq: 0x10,
        frame_ep: 0x20,
        iseq_body: 0x10,
        body_size: 4,
        body_code: 8,
        body_path: 0x40,
        body_base_label: 0x48,
        body_label: 0x50,
        body_first_line: 0x58,
        first_line_shift: 1,
        body_lines: 0x78,
        body_lines_len: 0x88,
        body_index: 0x90,
        line_bytes: 12,
        method_definition: 0x10,
        method_owner: 0x20,
        definition_id: 0x20,
        class_extension: 0x18,
        extension_variables: 8,
        symbols_ids: 0x10,
        last_operator: 169,
        strings: STRINGS_BY_FLAGS,
        ..nothing
    }
}

/// What differs in <https://github.com/ruby/ruby/tree/v3_3_8>. Tags hold a `jmp_buf` of the C library's.
fn ruby_3_3() -> Facts {
    Facts {
        tag_previous: 0xd8,
        tag_state: 0xe0,
        frame_bytes: 0x38,
        first_line_shift: 0,
        body_lines: 0x70,
        body_lines_len: 0x80,
        body_index: 0x88,
        class_extension: 0,
        extension_variables: 0,
        class_path: 0x98,
        class_attached: 0x80,
        strings: STRINGS_BY_WORD,
        ..ruby_3_1()
    }
}
