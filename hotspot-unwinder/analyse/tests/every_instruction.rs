//! A thread of a Java program, one instruction at a time: the caller that the signal half finds for each frame is where
//! the thread comes to when its stack pointer is the caller's again.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::plugin::ABI;
use uunwind_core::regs::{Regs, RBP, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::walk::{walk, Claim, Claimed, Env, Look, Names, Replay, Setting, SCRATCH};
use uunwind_elf::Image;
use uunwind_hotspot::facts::Facts;
use uunwind_hotspot_analyse::analyse;
use uunwind_language::Finding;

/// Instructions that are stepped.
const STEPS: u32 = 60_000;
/// Index of the plugin.
const INDEX: u8 = 1;
/// Instructions that a thread may take between the caller's stack pointer and the caller.
const LEAVING: u32 = 40;

/// How methods are run.
const TIERS: [&[&str]; 4] =
    [&["-Xint", "-Dwarm=100"], &["-XX:TieredStopAtLevel=1"], &["-XX:-TieredCompilation"], &["-Xcomp", "-Dwarm=100"]];

/// The facts, aligned as in memory.
#[repr(align(16))]
struct Aligned([u8; size_of::<Facts>()]);

#[test]
fn callers_are_where_the_thread_comes_to() {
    let what = "every instruction of Java";
    let homes = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|folder| folder.path());
    let homes: Vec<PathBuf> = homes.filter(|home| !home.is_symlink() && home.join("bin/javac").exists()).collect();
    if homes.is_empty() {
        return uunwind_skips::skipped(what, "this machine has no JDK");
    }
    let steps = std::env::var("UU_TEST_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let mut all = true;
    for home in homes {
        let library = home.join("lib/server/libjvm.so");
        let image = Image::open(&library).unwrap_or_else(|why| panic!("{}: {why:?}", library.display()));
        let facts = match analyse(&image) {
            Finding::Facts(facts) => facts,
            other => {
                uunwind_skips::skipped(what, &format!("{}: {other:?}", library.display()));
                continue;
            }
        };
        let scratch = prepare(&home);
        let only = std::env::var("UU_TEST_TIER").unwrap_or_default();
        for options in TIERS.into_iter().filter(|options| options[0].contains(&only)) {
            let mut stepped = Stepped::start(&home, &scratch, options, &facts);
            stepped.run(steps);
            all &= stepped.judge(&home, options);
        }
    }
    assert!(all, "places with another caller");
}

/// Compiles the program and its library.
fn prepare(home: &Path) -> PathBuf {
    let name = home.file_name().expect("a folder").to_string_lossy().into_owned();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&scratch).expect("a folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/hotspot");
    let run = |command: &mut Command| assert!(command.status().expect("a compiler").success(), "{command:?}");
    run(Command::new(home.join("bin/javac")).arg("-d").arg(&scratch).arg(sources.join("Chain.java")));
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(scratch.join("libcap.so"))
        .arg(sources.join("cap.c")));
    scratch
}

/// A traced program.
struct Stepped {
    child: Child,
    tid: i32,
    facts: Box<Aligned>,
    bias: u64,
    /// What has been predicted and did not happen yet, outermost first.
    pending: Vec<Prediction>,
    /// Predictions that came true, and instructions without one.
    right: u64,
    lost: BTreeMap<String, u64>,
    wrong: BTreeMap<String, (u64, String)>,
    last: u64,
}

/// The thread comes to `pc` with this stack pointer.
struct Prediction {
    sp: u64,
    pc: u64,
    frame: Option<u64>,
    /// Instructions at which that was predicted, with their code.
    from: Vec<(u64, String)>,
    /// Instructions since the stack pointer is there.
    late: u32,
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

unsafe extern "C" fn read(context: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    let local = libc::iovec { iov_base: out.cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: len };
    // SAFETY: `out` has room for `len` bytes, as the reader promises.
    unsafe { libc::process_vm_readv(context as usize as i32, &local, 1, &remote, 1, 0) == len as isize }
}

impl Stepped {
    fn start(home: &Path, scratch: &Path, options: &[&str], facts: &[u8]) -> Stepped {
        let mut command = Command::new(home.join("bin/java"));
        command.args(options).arg("-cp").arg(scratch).arg("Chain").env("UU_TEST_ROUNDS", "1000000000");
        command.env("UU_TEST_CAP", scratch.join("libcap.so")).env("UU_TEST_CALM", "1").env_remove("JAVA_TOOL_OPTIONS");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("java starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let pid = child.id();
        // The thread that has had the most CPU time runs the program.
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let named = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "java\n");
        let time = |path: &Path| {
            let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0)
        };
        let task = tasks.map(|task| task.path()).filter(|task| named(task)).max_by_key(|task| time(task));
        let task = task.expect("a thread called java");
        let tid: i32 = task.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("mappings");
        let first = maps.lines().find(|line| line.ends_with("/server/libjvm.so")).expect("the library");
        let bias = first.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).expect("an address");
        // SAFETY: ptrace of a thread of a child of this process, by the thread that traces it.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_ATTACH, tid, 0, 0), 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            assert_eq!(libc::waitpid(tid, &mut status, libc::__WALL), tid);
        }
        let mut aligned = Box::new(Aligned([0; size_of::<Facts>()]));
        aligned.0.copy_from_slice(facts);
        let (pending, lost, wrong) = Default::default();
        Stepped { child, tid, facts: aligned, bias, pending, right: 0, lost, wrong, last: 0 }
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain numbers; the structure is filled by ptrace.
        unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, self.tid, 0, &raw mut registers);
            registers
        }
    }

    /// Resumes the thread in this way up to its next stop. False: it is gone.
    fn resume(&self, request: u32) -> bool {
        let mut signal = 0;
        loop {
            // SAFETY: ptrace of a stopped thread.
            let status = unsafe {
                let mut status = 0;
                if libc::ptrace(request, self.tid, 0, signal) != 0 {
                    return false;
                }
                libc::waitpid(self.tid, &mut status, libc::__WALL);
                status
            };
            if !libc::WIFSTOPPED(status) {
                return false;
            }
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP => return true,
                other => signal = other,
            }
        }
    }

    /// Runs the thread until it returns to an address, with the stack pointer above `slot`.
    fn return_to(&self, address: u64, slot: u64) -> bool {
        let offset = |register: usize| std::mem::offset_of!(libc::user, u_debugreg) + 8 * register;
        // SAFETY: ptrace of a stopped thread; debug register 0 stops at an instruction.
        unsafe {
            libc::ptrace(libc::PTRACE_POKEUSER, self.tid, offset(0), address);
            libc::ptrace(libc::PTRACE_POKEUSER, self.tid, offset(7), 1);
        }
        let mut returned = false;
        while !returned && self.resume(libc::PTRACE_CONT) {
            let registers = self.registers();
            returned = registers.rip == address && registers.rsp > slot;
            if !returned && !self.resume(libc::PTRACE_SINGLESTEP) {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.tid, offset(7), 0) };
        returned
    }

    /// Lets the thread run for a while. False: it is gone.
    fn let_run(&self) -> bool {
        // SAFETY: ptrace of a stopped thread, and a signal to it.
        unsafe {
            let mut status = 0;
            libc::ptrace(libc::PTRACE_CONT, self.tid, 0, 0);
            std::thread::sleep(std::time::Duration::from_millis(1));
            libc::syscall(libc::SYS_tgkill, self.child.id(), self.tid, libc::SIGSTOP);
            libc::waitpid(self.tid, &mut status, libc::__WALL) == self.tid && libc::WIFSTOPPED(status)
        }
    }

    fn run(&mut self, steps: u32) {
        let mut stepped = 0;
        while stepped < steps {
            let before = self.registers();
            if !self.in_code(before.rip) {
                // Stopped in native code: on to Java.
                if !self.let_run() {
                    return;
                }
                self.pending.clear();
                continue;
            }
            stepped += 1;
            self.arrive(&before);
            self.predict(&before);
            let mut bytes = [0; 16];
            // SAFETY: room for 16 bytes.
            unsafe { read(self.tid as usize as *mut c_void, before.rip, bytes.as_mut_ptr(), 16) };
            let instruction = Decoder::with_ip(64, &bytes, before.rip, DecoderOptions::NONE).decode();
            let calls = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            self.last = before.rip;
            if !self.resume(libc::PTRACE_SINGLESTEP) {
                return;
            }
            let after = self.registers();
            let enters_native = !self.in_code(after.rip);
            if calls && enters_native && !self.return_to(instruction.next_ip(), after.rsp) {
                return;
            }
            if !calls && enters_native && !self.leave_native(&after) {
                return;
            }
        }
    }

    /// After a jump or a return to native code: as far as it returns by itself, or not at all.
    fn leave_native(&mut self, after: &libc::user_regs_struct) -> bool {
        // A return to C++, which goes on, and may come back by another call.
        self.arrive(after);
        self.pending.clear();
        self.let_run()
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut word = 0u64;
        // SAFETY: room for a word.
        let read = unsafe { read(self.tid as usize as *mut c_void, address, (&raw mut word).cast(), 8) };
        read.then_some(word)
    }

    /// Whether an address is in the code cache.
    fn in_code(&self, address: u64) -> bool {
        let facts = Facts::read(&self.facts.0).expect("facts");
        let bounds = self.word(self.bias + facts.cache_low).zip(self.word(self.bias + facts.cache_high));
        bounds.is_some_and(|(low, high)| low <= address && address < high)
    }

    /// Compares what was predicted with where the thread is.
    fn arrive(&mut self, now: &libc::user_regs_struct) {
        while let Some(top) = self.pending.last_mut() {
            if now.rsp < top.sp {
                return;
            }
            let is_there = now.rip == top.pc && now.rsp == top.sp && top.frame.is_none_or(|frame| frame == now.rbp);
            if !is_there && now.rsp == top.sp && top.late < LEAVING {
                top.late += 1;
                return;
            }
            let top = self.pending.pop().expect("a prediction");
            if is_there {
                self.right += top.from.len() as u64;
                continue;
            }
            for (pc, code) in top.from {
                let text = format!(
                    "{pc:x}: {:x} sp {:x} rbp {:x?} was predicted, {:x} sp {:x} rbp {:x} it was, from {:x}; {code}",
                    top.pc, top.sp, top.frame, now.rip, now.rsp, now.rbp, self.last
                );
                let place = self.place(pc);
                self.wrong.entry(place).or_insert((0, text)).0 += 1;
            }
        }
    }

    /// Predicts where the thread returns to.
    fn predict(&mut self, now: &libc::user_regs_struct) {
        let code = format!("{:02x?}", self.code(now.rip));
        let Some((pc, sp, frame)) = self.caller(now) else {
            *self.lost.entry(format!("{}: {code}", self.place(now.rip))).or_default() += 1;
            return;
        };
        let from = (now.rip, code);
        match self.pending.last_mut() {
            Some(top) if top.sp == sp && top.pc == pc && top.frame == frame => {
                if !top.from.iter().any(|(at, _)| *at == now.rip) {
                    top.from.push(from);
                }
            }
            _ => self.pending.push(Prediction { sp, pc, frame, from: vec![from], late: 0 }),
        }
    }

    /// The name of the code at an address.
    fn place(&self, address: u64) -> String {
        let facts = Facts::read(&self.facts.0).expect("facts");
        let queue = self.word(self.bias + facts.interpreter).unwrap_or(0);
        let start = self.word(queue + u64::from(facts.queue_buffer)).unwrap_or(0);
        let size = self.word(queue + u64::from(facts.queue_limit)).unwrap_or(0) as u32;
        match address.wrapping_sub(start) < size.into() {
            true => format!("interpreter+{:x}", address - start),
            false => "other".to_owned(),
        }
    }

    /// Code before and after an instruction.
    fn code(&self, address: u64) -> [Vec<u8>; 2] {
        let part = |from: u64| {
            let mut bytes = vec![0; 24];
            // SAFETY: room for 24 bytes.
            unsafe { read(self.tid as usize as *mut c_void, from, bytes.as_mut_ptr(), 24) };
            bytes
        };
        [part(address - 24), part(address)]
    }

    /// The caller's pc, stack pointer and rbp, by the signal half.
    fn caller(&self, registers: &libc::user_regs_struct) -> Option<(u64, u64, Option<u64>)> {
        let r = registers;
        let values = [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15,
        ];
        let cursor = Cursor { regs: Regs::full(r.rip, values), exact: true };
        // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
        let plugin = unsafe { uunwind_hotspot::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
        let claim = Claim {
            step: plugin.step,
            index: INDEX,
            facts: self.facts.0.as_ptr(),
            facts_len: self.facts.0.len(),
            range: Span::EMPTY,
            bias: self.bias,
            generation: 1,
            ..Claim::NOTHING
        };
        let mut environment = Once { claim: Some(claim), caller: None };
        // SAFETY: reads of the traced process by `read`.
        let mut reader = unsafe { Reader::new(Mode::Hosted(read, self.tid as usize as *mut c_void)) };
        let mut scratch = vec![0u128; SCRATCH / 16];
        let setting = Setting { thread_pointer: r.fs_base, scratch: scratch.as_mut_ptr().cast(), ..Setting::EMPTY };
        let mut words = vec![0; 64];
        // SAFETY: the scratch memory has SCRATCH bytes; the facts outlive the walk.
        unsafe { walk(cursor, &mut environment, &mut reader, &mut words, &setting) };
        environment.caller
    }

    fn judge(&self, home: &Path, options: &[&str]) -> bool {
        let count = |lost: &BTreeMap<String, u64>| lost.values().sum::<u64>();
        let wrong: u64 = self.wrong.values().map(|(count, _)| count).sum();
        let home = home.file_name().unwrap_or_default().display();
        println!("{home} {options:?}: {} right, {} lost, {wrong} wrong", self.right, count(&self.lost));
        let mut lost: Vec<_> = self.lost.iter().collect();
        lost.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (place, count) in lost.into_iter().take(12) {
            println!("  lost {count} at {place}");
        }
        for (place, (count, text)) in self.wrong.iter().take(12) {
            println!("  wrong {count} at {place}: {text}");
        }
        assert!(self.right > 1000, "{options:?}: {} callers were compared", self.right);
        self.wrong.is_empty()
    }
}

/// One step of the plugin's, and the frame that it leads to.
struct Once {
    claim: Option<Claim>,
    caller: Option<(u64, u64, Option<u64>)>,
}

impl Env for Once {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        Rule::end().pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let claim = match self.claim.take() {
            Some(claim) => Claimed::By(claim),
            None => {
                self.caller = Some((cursor.regs.pc, cursor.regs.get(RSP).unwrap_or(0), cursor.regs.get(RBP)));
                Claimed::No
            }
        };
        Look { claim, ..Look::at(self.rule(cursor, reader)) }
    }
}

impl Names for Once {}
impl Replay for Once {}
