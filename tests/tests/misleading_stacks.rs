//! Stacks that the last resorts of a walk would explain wrongly: none of them may be called complete with frames
//! missing.

use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::{compile, paths, process, uu};

/// What the program shows of this stack: why its walk ended, and its functions, leaf first.
#[track_caller]
fn stack(what: &str) -> (StopReason, Vec<String>) {
    let scratch = paths::scratch(&format!("misleading-{what}"));
    let options = ["-O2", "-fomit-frame-pointer", "-fno-stack-protector"];
    let program = compile::with_library(&scratch, "misleading", &options);
    let out = process::run(Command::new(program).arg(what), &scratch, uu::LIMIT).expect_code(0);
    let mut words = out.stdout.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok()).expect("a reason");
    let functions = words
        .map(str::to_owned)
        .skip_while(|name| name != "shows" && !name.starts_with("traps") && name != "counts_inner")
        .collect();
    (StopReason::from_number(number).expect("a known reason"), functions)
}

/// A function without unwind information and without a frame leaves the frame pointer of a caller in its register. The
/// functions between the two are missing by it; the call that it leads to names another function.
#[test]
fn a_frame_pointer_that_skips_callers_is_not_followed() {
    assert_eq!(stack("skipped"), (StopReason::NoRule, ["shows", "calls"].map(str::to_owned).to_vec()));
}

/// While such a function has pushed nothing, its caller is the word at the stack pointer.
#[test]
fn the_call_of_an_interrupted_function_is_found() {
    for (what, leaf) in [("trapped", "traps"), ("later", "traps_later"), ("through", "traps_through")] {
        let (stop, functions) = stack(what);
        assert_eq!(stop, StopReason::Complete, "{what}");
        assert_eq!(functions.get(..5).expect("five functions"), [leaf, "inner", "middle", "outer", "main"]);
    }
}

/// The return address of a call that has returned is no caller.
#[test]
fn what_an_earlier_call_left_is_no_caller() {
    assert_eq!(stack("deeper"), (StopReason::NoRule, vec!["traps_deeper".to_owned()]));
}

/// Where a function ends in a call, its return address is the first byte of the next one.
#[test]
fn a_call_at_a_functions_end_does_not_begin_a_stack() {
    let (stop, functions) = stack("noreturn");
    assert_eq!(stop, StopReason::Complete);
    assert_eq!(functions.get(..5).expect("five functions"), ["shows", "ends_in_call", "inner", "middle", "outer"]);
}

/// Where zeros were written over return addresses, no stack begins: nothing of the program's own does on the stack that
/// a thread was started on.
#[test]
fn cleared_return_addresses_do_not_begin_a_stack() {
    for what in ["cleared", "cleared-in-thread"] {
        let expected = ["shows", "clears"].map(str::to_owned).to_vec();
        assert_eq!(stack(what), (StopReason::NullReturnAddress, expected), "{what}");
    }
}

/// Nor does one begin where another function's address was written over a return address.
#[test]
fn overwritten_return_addresses_do_not_begin_a_stack() {
    let expected = ["shows", "overruns"].map(str::to_owned).to_vec();
    assert_eq!(stack("overrun"), (StopReason::NotCode, expected));
}

/// A signal handler returns to code of the program's own that nothing describes.
#[test]
fn a_restorer_of_the_programs_own_is_a_signals_frame() {
    let (stop, functions) = stack("signalled");
    assert_eq!(stop, StopReason::Complete);
    let [shows, handles, restorer, syscall, signals, inner, ..] = &functions[..] else { panic!("{functions:?}") };
    // The restorer's address is looked up as that of a call: it has no name, or the name of what is before it.
    assert_ne!(restorer, "signals");
    assert_eq!([shows, handles, syscall, signals, inner], ["shows", "handles", "syscall", "signals", "inner"]);
}

/// The function whose first byte begins a stack was not called: it is named, and not the one before it.
#[test]
fn the_function_that_begins_a_stack_is_named() {
    let (stop, functions) = stack("begun");
    assert_eq!((stop, functions), (StopReason::StartSymbol, ["shows", "first"].map(str::to_owned).to_vec()));
}

/// A caller's CFA counts from a register that its callee leaves alone without saying so. Where the callee was
/// interrupted, the register's value is used, if a call of this function stands before the return address there.
#[test]
fn a_register_that_an_interrupted_callee_keeps_is_used() {
    let (stop, functions) = stack("counted");
    assert_eq!(stop, StopReason::Complete);
    let expected = ["counts_inner", "counts_from_rax", "counted", "inner", "middle", "outer", "main"];
    assert_eq!(functions.get(..7).expect("seven functions"), expected);
    let expected = ["counts_inner", "counts_from_rax"].map(str::to_owned).to_vec();
    assert_eq!(stack("miscounted"), (StopReason::UnknownRegister, expected));
}

/// A handler that has returned and is jumped back into has a signal frame below it that leads nowhere.
#[test]
fn a_coroutine_that_a_handler_has_made_is_a_stack_of_its_own() {
    let (stop, functions) = stack("coroutine");
    assert_eq!(stop, StopReason::SwitchedStack);
    let [shows, in_handler, begins, _restorer] = &functions[..] else { panic!("{functions:?}") };
    assert_eq!([shows, in_handler, begins], ["shows", "in_handler", "begins_coroutine"]);
}
