//! The structures' layout, per version. No table in the file describes them.

use crate::version::Version;
use std::mem::size_of;
use uunwind_php::facts::{Facts, Plain, FACTS_VERSION};

/// The versions that are served, for messages.
pub fn served() -> &'static str {
    "7.4, 8.2 and 8.4"
}

/// Facts with the layout of a version's structures, and no addresses. `None`: the version is not served.
pub fn of(version: Version) -> Option<Facts> {
    match (version.major, version.minor) {
        (7, 4) => Some(php_7_4()),
        (8, 2) => Some(php_8_2()),
        (8, 4) => Some(php_8_4()),
        _ => None,
    }
}

/// <https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_compile.h>, `zend_globals.h`, `zend_types.h`, `zend.h` and
/// `zend_generators.h` there.
fn php_8_2() -> Facts {
    let nothing = Facts::from_bytes(&[0; size_of::<Facts>()]).unwrap_or_else(|| unreachable!("as many bytes"));
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        globals_frame: 488,
        globals_opline: 880,
        frame_opline: 0,
        frame_function: 24,
        frame_this: 32,
        frame_previous: 48,
        function_flags: 4,
        function_name: 8,
        function_scope: 16,
        code_len: 80,
        code_oplines: 88,
        code_file: 152,
        code_line: 160,
        opline_bytes: 32,
        opline_line: 24,
        opline_opcode: 28,
        handle_exception: 149,
        class_name: 8,
        string_len: 16,
        string_text: 24,
        generator_frame: 56,
        generator_placeholder: 184,
        generator_parent: 152,
        ..nothing
    }
}

/// <https://github.com/php/php-src/blob/PHP-8.4/Zend/zend_compile.h> and `zend_globals.h` there.
fn php_8_4() -> Facts {
    Facts { globals_opline: 952, code_len: 96, code_oplines: 104, code_file: 168, code_line: 176, ..php_8_2() }
}

/// <https://github.com/php/php-src/blob/PHP-7.4/Zend/zend_compile.h> and `zend_generators.h` there.
fn php_7_4() -> Facts {
    Facts {
        code_len: 60,
        code_oplines: 64,
        code_file: 136,
        code_line: 144,
        generator_frame: 64,
        generator_placeholder: 200,
        generator_parent: 160,
        ..php_8_2()
    }
}
