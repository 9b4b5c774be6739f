//! The frames by which a program and its threads are started, and which say nothing of it.

use crate::paths::is_library;
use crate::stacks::{Kind, Line, Profile};

/// Functions of C libraries, of compilers' runtimes and of threads; the beginnings of names with a `*` after them.
const STARTERS: &[&str] = &[
    "_start",
    "__libc_start_main*",
    "__libc_start_call_main",
    "generic_start_main",
    "libc_start_main_stage2",
    "_start_c",
    "_dl_start*",
    "clone",
    "clone3",
    "__clone*",
    "thread_start",
    "start_thread",
    "start",
    "execute_native_thread_routine*",
    "std::thread::_State_impl<*",
    "std::thread::_Invoker<*",
    "std::__invoke*",
    "std::invoke*",
    "std::rt::lang_start*",
    "std::panic*",
    "std::sys::*",
    "std::thread::Builder::spawn_unchecked*",
    "std::thread::lifecycle::spawn_unchecked*",
    "core::ops::function::FnOnce::call_once*",
    "<alloc::boxed::Box<*",
    "<core::panic::unwind_safe::AssertUnwindSafe<*",
];

/// How many frames at the outer end of a stack are those of its start: of the list, an interpreter's without names,
/// and functions of a language's libraries that lead to the first function of the program's own. At least one frame
/// remains.
pub(super) fn outermost(profile: &Profile, stack: &[u32]) -> usize {
    let lines = || stack.iter().rev().filter_map(|line| profile.lines.get(*line as usize));
    let is_interpreted = lines().any(|line| line.kind.is_semantic());
    let is_internal =
        |line: &Line| is_interpreted && line.object.is_some_and(|object| profile.internals.contains(&object));
    // The C++ library's own thread function has no name where that is stripped: the frames around it have.
    let may_start = |line: &&Line| is_starter(line) || is_unnamed(line);
    let starts = |line: &Line| is_starter(line) || is_unnamed(line) && is_internal(line);
    let native = lines().take_while(may_start).collect::<Vec<_>>();
    let native = native.iter().rposition(|line| starts(line)).map_or(0, |last| last + 1);
    let native = native.min(stack.len().saturating_sub(1));
    let scripted = lines().skip(native).take_while(|line| line.kind.is_semantic() && is_library(&line.file)).count();
    let is_own = |line: &Line| line.kind.is_semantic() && !is_library(&line.file);
    native + if lines().nth(native + scripted).is_some_and(is_own) { scripted } else { 0 }
}

fn is_unnamed(line: &Line) -> bool {
    line.kind == Kind::Native && !line.named
}

fn is_starter(line: &Line) -> bool {
    // Line by line, names end in lines.
    let name = match line.function.rsplit_once(':') {
        Some((name, number)) if number == line.position() => name,
        _ => &line.function,
    };
    let matches = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    };
    matches!(line.kind, Kind::Native | Kind::Inlined) && STARTERS.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(frames: &[(Kind, &str, &str)]) -> usize {
        let line = |(kind, function, file): &(Kind, &str, &str)| Line {
            kind: *kind,
            file: (*file).to_owned(),
            named: !function.is_empty(),
            ..Line::marker((*function).to_owned())
        };
        let profile = Profile { lines: frames.iter().map(line).collect(), ..Profile::default() };
        let stack: Vec<u32> = (0..frames.len() as u32).rev().collect();
        outermost(&profile, &stack)
    }

    /// Stacks, outermost frame first.
    #[test]
    fn what_starts_a_program_is_left_out_and_its_own_code_is_not() {
        let native = |name: &'static str| (Kind::Native, name, "");
        let thread = (Kind::Semantic, "Thread.run", "/usr/lib/x/threading.x");
        let own = (Kind::Semantic, "work", "/srv/app.x");
        let [start, main] = [native("_start"), native("main")];
        assert_eq!(left(&[start, native("__libc_start_main_impl"), main, start]), 2);
        assert_eq!(left(&[native("clone3"), native("start_thread"), thread, thread, own, thread]), 4);
        assert_eq!(left(&[start]), 1 - 1, "something remains");
        assert_eq!(left(&[start, thread, thread]), 1, "a program that is a library's");
        assert_eq!(left(&[start, thread, main, own]), 1, "native code of the program's own stays");
        assert_eq!(left(&[main, start]), 0);
        assert_eq!(left(&[native("__libc_start_call_main:0"), main]), 1, "line by line");
        assert_eq!(left(&[]), 0);
        let unnamed = (Kind::Native, "", "");
        assert_eq!(left(&[start, unnamed, native("std::__invoke_impl<int>"), main]), 3, "the C++ library is stripped");
        assert_eq!(left(&[start, unnamed, main]), 1, "the program is stripped");
    }
}
