//! The crate against the library that `ci/build` laid out: stacks with their names, windows that end with their guards,
//! and what happens where there is no library.

#[cfg(target_arch = "x86_64")]
mod code;

#[cfg(target_arch = "x86_64")]
use code::{called_back, Code};
use std::process::Command;
use uunwind::{CrashReport, Error, Kind, Stack, StopReason, Unwind, Window};

#[inline(never)]
fn outer(depth: u32) -> Stack {
    let stack = if depth == 0 { Stack::capture().expect("the library") } else { outer(depth - 1) };
    std::hint::black_box(stack)
}

#[test]
fn a_stack_has_the_functions_of_this_program() {
    uunwind::setup().expect("the set-up object");
    let stack = outer(3);
    assert!(stack.is_complete(), "{:?} {}", stack.stop(), stack.doubt());
    let frames = stack.symbolize().expect("names");
    let functions: Vec<&str> = frames.iter().filter(|f| f.kind == Kind::Native).map(|f| &*f.function).collect();
    assert!(functions[..4].iter().all(|name| *name == "stacks::outer"), "{functions:?}");
    let caller = "a_stack_has_the_functions_of_this_program";
    assert!(frames.iter().any(|frame| frame.function.contains(caller)), "{frames:#?}");
    assert!(frames[0].file.ends_with("tests/stacks.rs") && frames[0].line.is_some(), "{:?}", frames[0]);
    assert_eq!(stack.len(), functions.len());
    assert_eq!(Stack::from_words(stack.words()).expect("frames").symbolize().expect("names"), frames);
    assert!(Stack::from_words(&[0]).is_none());
    let shown = stack.to_string();
    assert!(shown.starts_with("   0: stacks::outer\n        at ") && shown.contains("stacks.rs:"), "{shown}");
}

#[test]
fn a_native_capture_is_the_same_stack() {
    uunwind::setup().expect("the set-up object");
    let mut words = [0; 512];
    let captured = uunwind::native(&mut words).expect("it is loaded");
    let stack = Stack::capture().expect("the library");
    assert_eq!(captured.stop, Some(StopReason::Complete));
    // The same frames, but for the line of the leaf.
    assert_eq!(words[1..captured.words], stack.words()[1..]);
    let too_small = uunwind::native(&mut words[..2]).expect("it is loaded");
    assert_eq!((too_small.words, too_small.stop), (2, Some(StopReason::BufferFull)));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn code_in_a_window_has_its_name_until_the_guard_ends() {
    uunwind::setup().expect("the set-up object");
    // push %rbp; mov %rsp,%rbp; mov %rdi,%rax; mov %rsi,%rdi; call *%rax; pop %rbp; ret
    let code = Code::of(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3]);
    // SAFETY: the bytes above are a function of this type.
    let call: extern "C" fn(extern "C" fn(*mut Option<Stack>), *mut Option<Stack>) =
        unsafe { std::mem::transmute(code.0) };
    let text = code.0;
    let window = Window::of(code, Unwind::FramePointer).function(0, 14, "jitted").register().expect("a window");
    let mut stack = None;
    call(called_back, &raw mut stack);
    let stack = stack.expect("it was called back");
    assert!(stack.is_complete(), "{stack}");
    let frames = stack.symbolize().expect("names");
    let jitted = frames.iter().find(|frame| frame.kind == Kind::Window).expect("a frame in the window");
    assert_eq!(jitted.function, "jitted");
    assert_eq!(window.code().len(), 14);

    let overlapping = Window::of(AtThe(text), Unwind::Opaque).register();
    assert_eq!(overlapping.err().map(Error::from), Some(Error::Os { call: "uu_register_window", errno: libc::EEXIST }));
    drop(window);
    // The place is free: the guard has unregistered its window.
    let again = Code::of(&[0xc3]);
    let window = Window::of(again, Unwind::Opaque).register().expect("a window");
    let code = window.unregister().expect("no walk is under way");
    let window = Window::of(code, Unwind::Opaque).register().expect("its place is free again");
    drop(window);
    let empty = Window::of(Vec::new(), Unwind::Opaque).register().err();
    assert_eq!(empty.map(Error::from), Some(Error::Os { call: "uu_register_window", errno: libc::EINVAL }));
}

#[cfg(target_arch = "x86_64")]
struct AtThe(*mut u8);

#[cfg(target_arch = "x86_64")]
impl AsRef<[u8]> for AtThe {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the test keeps the window whose first byte it is.
        unsafe { std::slice::from_raw_parts(self.0, 1) }
    }
}

#[test]
fn another_thread_is_seen_where_it_waits() {
    uunwind::setup().expect("the set-up object");
    let (send, receive) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: gettid has no preconditions.
        send.send(unsafe { libc::gettid() }).expect("the test waits");
        waits_here(&stopped);
    });
    let tid = receive.recv().expect("the thread sends") as u32;
    let limit = std::time::Duration::from_secs(60);
    let stack = Stack::of_thread(tid, limit).expect("it answers");
    let frames = stack.symbolize().expect("names");
    // It sends, or waits already.
    assert!(frames.iter().any(|frame| frame.function.contains("another_thread_is_seen")), "{stack}");
    drop(stop);
    thread.join().expect("no panic");
    let gone = Stack::of_thread(u32::MAX >> 1, limit).err();
    assert_eq!(gone, Some(Error::Os { call: "uu_walk_thread", errno: libc::ESRCH }));
}

#[inline(never)]
fn waits_here(stopped: &std::sync::mpsc::Receiver<()>) {
    let _ = stopped.recv();
    std::hint::black_box(stopped);
}

/// Runs one of this file's tests, which does its work only there, in a process of its own.
fn alone(test: &str, variable: &str, value: &str) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("UU_ALONE", test).env(variable, value);
    command.output().expect("it runs")
}

fn is_alone(test: &str) -> bool {
    std::env::var_os("UU_ALONE").is_some_and(|name| name == test)
}

#[test]
fn without_the_library_each_call_says_so() {
    let test = "without_the_library_each_call_says_so";
    if !is_alone(test) {
        let output = alone(test, "UUNWIND_LIBRARY", "/no/such/libuunwind.so.0");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    assert!(uunwind::native(&mut [0; 8]).is_none());
    let errors = [
        uunwind::load().err(),
        uunwind::setup().err(),
        Stack::capture().err(),
        Window::of(vec![0xc3], Unwind::Opaque).register().err().map(Error::from),
        uunwind::ids_lost().err(),
    ];
    for error in errors {
        let Some(Error::NoLibrary(why)) = &error else { panic!("{error:?}") };
        assert!(why.contains("/no/such/libuunwind.so.0"), "{why}");
    }
    // Another library is not taken for it.
    std::env::set_var("UUNWIND_LIBRARY", "libc.so.6");
    assert_eq!(uunwind::load().err(), Some(Error::Missing("uu_abi")));
}

#[test]
fn a_panic_prints_the_mixed_stack() {
    let test = "a_panic_prints_the_mixed_stack";
    if !is_alone(test) {
        let output = alone(test, "RUST_BACKTRACE", "0");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown = text.split_once("mixed stack:\n").unwrap_or_else(|| panic!("{text}")).1;
        assert!(text.contains("the cause") && shown.starts_with("   0: stacks::panics"), "{text}");
        assert!(shown.contains("stacks.rs:") && shown.contains("start_thread"), "{text}");
        return;
    }
    uunwind::setup().expect("the set-up object");
    uunwind::install_panic_hook();
    panics();
}

#[inline(never)]
fn panics() {
    panic!("the cause");
}

/// Of two callers, the same one is the last for the library and for the crate, which closes the other's descriptor.
#[test]
fn destinations_that_are_set_at_once_are_set_one_after_the_other() {
    let test = "destinations_that_are_set_at_once_are_set_one_after_the_other";
    if !is_alone(test) {
        assert!(alone(test, "UU_CRASH", "").status.success());
        return;
    }
    let file = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("it is there");
    CrashReport::new().to(&file).expect("reports");
    let open = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let before = open();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    match CrashReport::new().to(&file) {
                        Ok(()) | Err(Error::Os { errno: libc::EBUSY, .. }) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(open(), before);
}

#[test]
fn a_crash_is_reported() {
    let test = "a_crash_is_reported";
    if !is_alone(test) {
        let path = std::env::temp_dir().join(format!("uunwind-crash-{}", std::process::id()));
        let output = alone(test, "UU_CRASH", path.to_str().expect("UTF-8"));
        let report = std::fs::read_to_string(&path).expect("a report");
        std::fs::remove_file(&path).expect("it is there");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{report}");
        let own = std::env::current_exe().expect("this program");
        let own = own.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        assert!(report.contains("SIGSEGV") && report.contains(own), "{report}");
        return;
    }
    uunwind::setup().expect("the set-up object");
    let path = std::env::var_os("UU_CRASH").expect("the path");
    // An earlier destination, which is closed when another one takes its place.
    CrashReport::new().to(&std::io::stderr()).expect("reports");
    CrashReport::end().expect("no reports");
    let file = std::fs::File::create(path).expect("a file");
    CrashReport { one_thread: true, ..CrashReport::new() }.to(&file).expect("reports");
    drop(file);
    // SAFETY: it is not: the process is to crash.
    unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_unwinder_gives_rules_and_names_until_its_window_ends() {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;
    use uunwind::{Function, Rule, Unwinder};

    /// How often each of its functions was called.
    struct Table(Arc<[AtomicU32; 2]>);

    // SAFETY: both count and compute.
    unsafe impl Unwinder for Table {
        fn rule(&self, offset: u64) -> Option<Rule> {
            self.0[0].fetch_add(1, Ordering::Relaxed);
            // From the call on: rsp + 32, and rbp as it was.
            (offset == 9).then_some(Rule::from_stack_pointer(32))
        }
        fn name(&self, offset: u64) -> Option<Function<'_>> {
            self.0[1].fetch_add(1, Ordering::Relaxed);
            (offset < 15).then_some(Function { name: "generated", start: 0 })
        }
    }

    uunwind::setup().expect("the set-up object");
    // sub $24,%rsp; xchg %rsi,%rdi; nop; call *%rsi; add $24,%rsp; ret
    let code = Code::of(&[0x48, 0x83, 0xec, 0x18, 0x48, 0x87, 0xf7, 0x90, 0xff, 0xd6, 0x48, 0x83, 0xc4, 0x18, 0xc3]);
    // SAFETY: the bytes above are a function of this type.
    let call: extern "C" fn(extern "C" fn(*mut Option<Stack>), *mut Option<Stack>) =
        unsafe { std::mem::transmute(code.0) };
    let calls = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let window = Window::stepped_by(code, Table(Arc::clone(&calls))).register().expect("a window");
    let mut stack = None;
    call(called_back, &raw mut stack);
    let stack = stack.expect("it was called back");
    assert!(stack.is_complete(), "{stack}");
    let frames = stack.symbolize().expect("names");
    let frame = frames.iter().find(|frame| frame.kind == Kind::Window).expect("a frame in the window");
    assert_eq!(frame.function, "generated");
    assert!(calls.iter().all(|count| count.load(Ordering::Relaxed) > 0));
    assert_eq!(Arc::strong_count(&calls), 2);
    drop(window);
    assert_eq!(Arc::strong_count(&calls), 1, "the unwinder lives as long as its window");
}

#[test]
fn all_threads_are_listed_with_their_stacks() {
    uunwind::setup().expect("the set-up object");
    // More than the first try has room for.
    const COUNT: usize = 70;
    let (send, receive) = std::sync::mpsc::channel();
    let (stops, threads): (Vec<_>, Vec<_>) = (0..COUNT)
        .map(|number| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let send = send.clone();
            let builder = std::thread::Builder::new().name(format!("waits-{number}"));
            let thread = builder.spawn(move || {
                uunwind::prepare_thread().expect("an alternate stack");
                // SAFETY: gettid has no preconditions.
                send.send(unsafe { libc::gettid() } as u32).expect("the test waits");
                waits_here(&stopped);
            });
            (stop, thread.expect("a thread"))
        })
        .unzip();
    let tids: Vec<u32> = receive.iter().take(COUNT).collect();
    let found = uunwind::all_threads(std::time::Duration::from_secs(60)).expect("stacks");
    // SAFETY: gettid has no preconditions.
    assert_eq!(found[0].tid, unsafe { libc::gettid() } as u32);
    for tid in tids {
        let thread = found.iter().find(|thread| thread.tid == tid).expect("each thread is listed");
        let stack = thread.stack.as_ref().expect("it answers");
        assert!(stack.is_complete() && thread.silent.is_none(), "{stack}");
        assert!(thread.name.starts_with("waits-"), "{}", thread.name);
    }
    let own = found[0].stack.as_ref().expect("this thread").to_string();
    assert!(own.contains("all_threads_are_listed"), "{own}");
    drop(stops);
    for thread in threads {
        thread.join().expect("no panic");
    }
}
