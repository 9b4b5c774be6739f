//! Frames that an interpreter shows itself, against the library that `ci/build` laid out: what the program pushed is
//! what its stacks have.

use std::path::PathBuf;
use uunwind::{Error, FrameList, FrameName, Interpreter, Kind, Stack};

/// The loop of an interpreter, which calls itself for each function, and `inside` in the innermost.
#[inline(never)]
fn evaluate(functions: &[(FrameName, u32)], inside: &dyn Fn()) {
    let Some(((function, line), callees)) = functions.split_first() else { return inside() };
    function.run(1, |frame| {
        frame.set_line(*line);
        evaluate(callees, inside);
    });
}

/// Functions of the language in a stack, innermost first, with their file and line.
fn shown(stack: &Stack) -> Vec<(String, PathBuf, Option<u32>)> {
    let frames = stack.symbolize().expect("names");
    let shown = frames.into_iter().filter(|frame| frame.kind == Kind::Semantic);
    shown.map(|frame| (frame.function, frame.file, frame.line)).collect()
}

fn named(function: &str, line: u32) -> (FrameName, u32) {
    (FrameName::intern(function, "prog.lang", line).expect("a name"), line + 1)
}

#[test]
fn published_frames_stand_in_the_native_frames_that_run_them() {
    uunwind::setup().expect("the set-up object");
    let nested = [named("main", 10), named("helper", 20), named("main", 10)];
    let captured = std::cell::RefCell::new(Vec::new());
    let capture = || captured.borrow_mut().push(Stack::capture().expect("the library"));

    // Before it is marked, nothing hosts them.
    evaluate(&nested, &capture);
    let code = Interpreter::mark(evaluate as *const ()).expect("a function");
    let again = Interpreter::mark(evaluate as *const ()).err();
    assert_eq!(again, Some(Error::Os { call: "uu_mark_interpreter", errno: libc::EEXIST }));
    evaluate(&nested, &capture);
    // A panic takes its frames away.
    let panicked = std::panic::catch_unwind(|| evaluate(&nested[..1], &|| std::panic::resume_unwind(Box::new(()))));
    assert!(panicked.is_err());
    evaluate(&[], &capture);
    // Another thread has a list of its own, which ends with it.
    std::thread::scope(|scope| {
        let other = || {
            uunwind::publish_frames().expect("a place");
            let captured = std::cell::RefCell::new(None);
            let capture = || drop(captured.replace(Stack::capture().ok()));
            evaluate(&nested[1..2], &capture);
            captured.into_inner().expect("a stack")
        };
        for _ in 0..2 {
            let stack = scope.spawn(other).join().expect("no panic");
            captured.borrow_mut().push(stack);
        }
    });
    drop(code);
    evaluate(&nested, &capture);

    let frame = |name: &str, line| (name.to_owned(), "prog.lang".into(), Some(line));
    let (helper, main) = (frame("helper", 21), frame("main", 11));
    let stacks = captured.into_inner();
    assert!(stacks.iter().all(Stack::is_complete), "{stacks:?}");
    let found: Vec<_> = stacks.iter().map(shown).collect();
    let nested = vec![main.clone(), helper.clone(), main];
    assert_eq!(found, [vec![], nested, vec![], vec![helper.clone()], vec![helper], vec![]]);

    // Each stands before the loop's native frame that runs it.
    let frames = stacks[1].symbolize().expect("names");
    let place = |frame: &uunwind::Frame| match frame.kind {
        Kind::Semantic => Some('f'),
        _ if frame.function == "published::evaluate" => Some('n'),
        _ => None,
    };
    assert_eq!(frames.iter().filter_map(place).collect::<String>(), "nfnfnfn", "{frames:#?}");
}

#[test]
fn what_is_no_function_is_refused() {
    let refused = |result: Result<Interpreter, Error>| match result {
        Err(Error::Os { call: "uu_mark_interpreter", errno }) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Interpreter::mark(std::ptr::null())), libc::EINVAL);
    assert_eq!(refused(Interpreter::mark(std::ptr::without_provenance(4096))), libc::ENOENT);
    assert_eq!(refused(Interpreter::mark_range(evaluate as *const (), 0)), libc::EINVAL);
    assert_eq!(refused(Interpreter::mark_range(evaluate as *const (), usize::MAX)), libc::EINVAL);
    let local = [0u64; 2];
    assert_eq!(refused(Interpreter::mark_range(local.as_ptr().cast(), 16)), libc::ENOENT);
    let with_nul = FrameName::intern("a\0b", "", 0).err();
    assert_eq!(with_nul, Some(Error::Os { call: "uu_intern", errno: libc::EINVAL }));
    // SAFETY: no plugin has this name.
    let call = unsafe { uunwind::plugin_call(c"none", 0, std::ptr::null_mut(), 0) };
    assert_eq!(call, Err(Error::Os { call: "uu_plugin_call", errno: libc::ENOENT }));
}

/// What a scheduler of coroutines does: the thread's list changes, and what runs in another one is not shown.
#[test]
fn each_coroutine_shows_the_frames_of_its_own_list() {
    uunwind::setup().expect("the set-up object");
    let _code = Interpreter::mark(suspended as *const ()).expect("a function");
    let (one, other) = (FrameList::new(), FrameList::new());
    let captured = std::cell::RefCell::new(Vec::new());
    let capture = || captured.borrow_mut().push(Stack::capture().expect("the library"));
    // SAFETY: the lists live until the end of this function, and frames end before.
    let switch = |to: &FrameList| unsafe { to.publish().expect("a place") };

    switch(&one);
    suspended(named("first", 10), &|| {
        switch(&other);
        suspended(named("second", 20), &|| {
            capture();
            switch(&one);
            capture();
            switch(&other);
            // The first one's frames end while the second one is the thread's.
        });
        capture();
    });
    switch(&one);
    capture();
    uunwind::publish_frames().expect("a place");
    suspended(named("third", 30), &capture);

    let frame = |name: &str, line| (name.to_owned(), "prog.lang".into(), Some(line));
    let found: Vec<_> = captured.into_inner().iter().map(shown).collect();
    assert_eq!(found, [vec![frame("second", 21)], vec![frame("first", 11)], vec![], vec![], vec![frame("third", 31)]]);
}

/// Runs code of a coroutine, which may switch.
#[inline(never)]
fn suspended((function, line): (FrameName, u32), inside: &dyn Fn()) {
    function.run(line, |_| inside());
}
