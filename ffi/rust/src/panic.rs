//! A panic hook that prints the whole stack.

use crate::{Frame, Stack};
use std::io::Write;

/// From now on a panic prints, after what the hook that is installed now prints, the mixed stack of its thread to the
/// standard error: native frames with inlined functions and lines, and those of interpreters and JITs. Frames of the
/// panic itself are left out. Where there is no stack, one line says why.
///
/// Call [`setup`](crate::setup) before, so that interpreters are found.
///
/// ```
/// uunwind::install_panic_hook();
/// assert!(std::panic::catch_unwind(|| panic!("the stack of this line is printed")).is_err());
/// ```
pub fn install_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        let text = Stack::capture().map_or_else(|error| format!("no mixed stack: {error}\n"), |stack| report(&stack));
        // Whatever goes wrong here: the panic goes on.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }));
}

fn report(stack: &Stack) -> String {
    let Ok(frames) = stack.symbolize() else { return format!("mixed stack:\n{stack}") };
    let mut text = "mixed stack:\n".to_owned();
    let shown = frames.get(first_of_program(&frames)..).unwrap_or(&frames);
    text += &Shown(shown).to_string();
    if !stack.is_complete() {
        text += &format!("  ({})\n", stack.stop().map_or("frames may be missing", |stop| stop.text()));
    }
    text
}

struct Shown<'a>(&'a [Frame]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::frame::write(self.0, f)
    }
}

/// The first frame after those of the panic; 0 if it cannot be determined. The names are those of
/// <https://github.com/rust-lang/rust/blob/1.88.0/library/std/src/panicking.rs> and core's file of that name.
fn first_of_program(frames: &[Frame]) -> usize {
    let begins = |frame: &Frame| {
        frame.function.ends_with("rust_begin_unwind") || frame.function.starts_with("std::panicking::begin_panic")
    };
    let Some(begin) = frames.iter().position(begins) else { return 0 };
    let of_core = |frame: &Frame| {
        ["core::panicking::", "core::option::", "core::result::", "std::panicking::", "std::rt::begin_panic"]
            .iter()
            .any(|room| frame.function.starts_with(room))
    };
    let after = frames.iter().skip(begin + 1).take_while(|frame| of_core(frame)).count();
    begin + 1 + after
}
