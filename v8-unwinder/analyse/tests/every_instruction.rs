//! The main thread of a Node program, one instruction at a time: the caller that the signal half finds for each frame
//! is the one that a shadow stack of its calls has.

#[path = "../../../tests/src/nodes.rs"]
mod nodes;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Register};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::plugin::ABI;
use uunwind_core::regs::{Regs, RBP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::walk::{walk, Claim, Claimed, Env, Look, Names, Replay, Setting, SCRATCH};
use uunwind_elf::Image;
use uunwind_language::Finding;
use uunwind_v8::facts::{State, Whole, PROLOGUE};
use uunwind_v8_analyse::analyse;

/// Instructions that are stepped.
const STEPS: u32 = 60_000;
/// Interpreted, baseline, optimised, optimised by the first compiler of two alone: options of Node.
const TIERS: [&[&str]; 4] = [
    &["--no-opt", "--no-maglev", "--no-sparkplug"],
    &["--no-opt", "--no-maglev", "--always-sparkplug"],
    &["--always-sparkplug"],
    &["--always-sparkplug", "--maglev", "--no-turbofan"],
];
/// The first Node whose official build has two.
const TWO_COMPILERS: u32 = 24;
/// Index of the plugin.
const INDEX: u8 = 1;

#[test]
fn callers_are_those_of_a_shadow_stack() {
    const WHAT: &str = "every instruction of Node";
    let missing = |major| uunwind_skips::skipped(WHAT, &format!("this machine has no Node {major}"));
    let steps = std::env::var("UU_TEST_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let mut all = true;
    for (at, node) in nodes::served(missing).iter().enumerate() {
        // One of them in every run.
        if at > 0 && !uunwind_skips::campaign(&format!("{WHAT} {}", node.version)) {
            continue;
        }
        let image = Image::open(&node.path).expect("an ELF file");
        let facts = match analyse(&image) {
            Finding::Facts(facts) => facts,
            other => {
                uunwind_skips::skipped(WHAT, &format!("{}: {other:?}", node.version));
                continue;
            }
        };
        println!("Node {}", node.version);
        let tiers = if node.major() >= TWO_COMPILERS { &TIERS[..] } else { &TIERS[..3] };
        for options in tiers {
            let mut stepped = Stepped::start(&node.path, options, &image, &facts);
            stepped.run(steps);
            all &= stepped.judge(options);
        }
    }
    assert!(all, "places with another caller");
}

/// A traced program.
struct Stepped<'f> {
    child: Child,
    pid: i32,
    facts: &'f [u8],
    /// The symbols of builtins, by address.
    names: BTreeMap<u64, String>,
    text: Span,
    shadow: Vec<Call>,
    /// How often the caller was the innermost one of the shadow stack, and where it was not.
    right: u64,
    lost: BTreeMap<String, (u64, String)>,
    resynced: BTreeMap<String, u64>,
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    returns_to: u64,
    rbp: u64,
}

impl Drop for Stepped<'_> {
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

impl<'f> Stepped<'f> {
    fn start(path: &PathBuf, options: &[&str], image: &Image, facts: &'f [u8]) -> Stepped<'f> {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/v8/graph.js");
        let mut command = Command::new(path);
        command.args(options).arg(script).env("UU_TEST_ROUNDS", "1000000000").env("UU_TEST_READY", "1");
        let mut child = command.stdout(Stdio::piped()).env_remove("NODE_OPTIONS").spawn().expect("node starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let pid = child.id() as i32;
        let executable = image.segments().iter().filter(|s| s.kind == 1 && s.flags & 1 != 0);
        let (low, high) =
            executable.fold((u64::MAX, 0), |(low, high), s| (low.min(s.address), high.max(s.address + s.memory_size)));
        let mut names = BTreeMap::new();
        let output = Command::new("nm").arg(path).output().expect("nm runs");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((address, name)) = line.split_once(' ').and_then(|(a, rest)| Some((a, rest.split_once(' ')?.1)))
            {
                if let (Some(name), Ok(address)) = (name.strip_prefix("Builtins_"), u64::from_str_radix(address, 16)) {
                    names.insert(address, name.to_owned());
                }
            }
        }
        // SAFETY: ptrace of a child of this process, by the thread that traces it.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0), 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, libc::__WALL), pid);
        }
        let (lost, resynced) = Default::default();
        Stepped { child, pid, facts, names, text: Span::new(low, high), shadow: Vec::new(), right: 0, lost, resynced }
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain numbers; the structure is filled by ptrace.
        unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers);
            registers
        }
    }

    /// Resumes the thread in this way up to its next stop. False: it is gone.
    fn resume(&self, request: u32) -> bool {
        let mut signal = 0;
        loop {
            // SAFETY: ptrace of a stopped child.
            let status = unsafe {
                let mut status = 0;
                if libc::ptrace(request, self.pid, 0, signal) != 0 {
                    return false;
                }
                libc::waitpid(self.pid, &mut status, libc::__WALL);
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

    /// Lets the thread run for a while. False: it is gone.
    fn let_run(&self) -> bool {
        // SAFETY: ptrace of a stopped child, and a signal to it.
        unsafe {
            let mut status = 0;
            libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0);
            std::thread::sleep(std::time::Duration::from_millis(1));
            libc::kill(self.pid, libc::SIGSTOP);
            libc::waitpid(self.pid, &mut status, libc::__WALL) == self.pid && libc::WIFSTOPPED(status)
        }
    }

    /// Runs the thread until it returns to an address, with the stack pointer above `slot`.
    fn return_to(&self, address: u64, slot: u64) -> bool {
        let offset = |register: usize| std::mem::offset_of!(libc::user, u_debugreg) + 8 * register;
        // SAFETY: ptrace of a stopped child; debug register 0 stops at an instruction.
        unsafe {
            libc::ptrace(libc::PTRACE_POKEUSER, self.pid, offset(0), address);
            libc::ptrace(libc::PTRACE_POKEUSER, self.pid, offset(7), 1);
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
        unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.pid, offset(7), 0) };
        returned
    }

    fn run(&mut self, steps: u32) {
        let mut stepped = 0;
        while stepped < steps {
            let before = self.registers();
            let ours = self.check(&before);
            if !ours && self.shadow.is_empty() {
                // Long work of C++, such as a collection.
                if !self.let_run() {
                    return;
                }
                continue;
            }
            stepped += 1;
            let mut bytes = [0; 16];
            // SAFETY: room for 16 bytes.
            unsafe { read(self.pid as usize as *mut c_void, before.rip, bytes.as_mut_ptr(), 16) };
            let instruction = Decoder::with_ip(64, &bytes, before.rip, DecoderOptions::NONE).decode();
            let flow = instruction.flow_control();
            if !self.resume(libc::PTRACE_SINGLESTEP) {
                return;
            }
            let after = self.registers();
            match flow {
                FlowControl::Call | FlowControl::IndirectCall => {
                    let returns_to = instruction.next_ip();
                    if ours && self.place(after.rip).is_none() {
                        if !self.return_to(returns_to, after.rsp) {
                            return;
                        }
                    } else {
                        self.shadow.push(Call { returns_to, rbp: before.rbp });
                    }
                }
                FlowControl::Return => {
                    let top = self.shadow.pop();
                    if top.is_some_and(|top| top.returns_to != after.rip) {
                        // A frame was made by other means than a call, or left so.
                        *self.resynced.entry(self.place(before.rip).unwrap_or_default()).or_default() += 1;
                        self.shadow.clear();
                    }
                }
                // Something is thrown: what has called is left, and the interpreter goes on without a call.
                _ if instruction.op0_register() == Register::RSP && instruction.memory_base() == Register::R13 => {
                    self.shadow.clear();
                }
                _ => {}
            }
        }
    }

    /// The name of V8's code at an address, and its distance from the start. `None`: it is not V8's.
    fn place(&self, address: u64) -> Option<String> {
        let whole = Whole::read(self.facts)?;
        let offset = self.in_blob(address)?;
        if offset == u64::MAX {
            return Some("compiled".to_owned());
        }
        let (start, name) = self.names.range(..=whole.facts.blob + offset).next_back()?;
        Some(format!("{name}+{}", whole.facts.blob + offset - start))
    }

    /// The distance of an address from the builtins' start; `u64::MAX`: it is compiled code.
    fn in_blob(&self, address: u64) -> Option<u64> {
        let facts = Whole::read(self.facts)?.facts;
        let size = u64::from(facts.blob_size);
        if address.wrapping_sub(facts.blob) < size {
            return Some(address - facts.blob);
        }
        let word = |address: u64| {
            let mut word = 0u64;
            // SAFETY: room for a word.
            let read = unsafe { read(self.pid as usize as *mut c_void, address, (&raw mut word).cast(), 8) };
            read.then_some(word)
        };
        let isolate = word(self.registers().fs_base.wrapping_add(facts.isolate as u64))?;
        let range = word(isolate.wrapping_add(facts.isolate_code_range.into()))?;
        let (start, len) =
            (word(range + u64::from(facts.range_region))?, word(range + u64::from(facts.range_region) + 8)?);
        let copy = word(range + u64::from(facts.range_copy))?;
        if copy != 0 && address.wrapping_sub(copy) < size {
            return Some(address - copy);
        }
        (address.wrapping_sub(start) < len).then_some(u64::MAX)
    }

    /// Checks the caller of the interrupted frame, if that is V8's.
    fn check(&mut self, registers: &libc::user_regs_struct) -> bool {
        let Some(offset) = self.in_blob(registers.rip) else { return false };
        let found = self.caller(registers);
        let Some(top) = self.shadow.last().copied() else { return true };
        let is = |call: &Call| found == Some((call.returns_to, Some(call.rbp)));
        if is(&top) {
            self.right += 1;
            return true;
        }
        let name = self.place(registers.rip).unwrap_or_default();
        let whole = Whole::read(self.facts).expect("facts");
        let state = u32::try_from(offset).ok().and_then(|offset| whole.at(offset));
        let rest = self.shadow.len() - 1;
        let outer = self.shadow.get(rest.saturating_sub(2)..rest).unwrap_or_default().iter().any(is);
        let may_skip = state.is_some_and(|(builtin, state)| {
            builtin.kind() == PROLOGUE
                || matches!(state, State::Inside | State::Left(_))
                || name.contains("OnStackReplacement")
        });
        if may_skip && (outer || rest < 2) {
            self.right += 1;
            return true;
        }
        let text = format!(
            "{found:x?}, not {top:x?}; {state:x?}; rsp {:x} rbp {:x}, {:02x?}",
            registers.rsp,
            registers.rbp,
            self.code(registers.rip)
        );
        let entry = self.lost.entry(name).or_insert((0, text));
        entry.0 += 1;
        true
    }

    /// Code before and after an instruction.
    fn code(&self, address: u64) -> [Vec<u8>; 2] {
        let part = |from: u64| {
            let mut bytes = vec![0; 24];
            // SAFETY: room for 24 bytes.
            unsafe { read(self.pid as usize as *mut c_void, from, bytes.as_mut_ptr(), 24) };
            bytes
        };
        [part(address - 24), part(address)]
    }

    /// The caller's pc and rbp, by the signal half.
    fn caller(&self, registers: &libc::user_regs_struct) -> Option<(u64, Option<u64>)> {
        let r = registers;
        let values = [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15,
        ];
        let cursor = Cursor { regs: Regs::full(r.rip, values), exact: true };
        // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
        let plugin = unsafe { uunwind_v8::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
        let in_text = self.text.start <= r.rip && r.rip < self.text.end;
        let claim = Claim {
            step: plugin.step,
            index: INDEX,
            facts: self.facts.as_ptr(),
            facts_len: self.facts.len(),
            range: if in_text { self.text } else { Span::EMPTY },
            generation: 1,
            ..Claim::NOTHING
        };
        let mut environment = Once { claim: Some(claim), caller: None };
        // SAFETY: reads of the traced process by `read`.
        let mut reader = unsafe { Reader::new(Mode::Hosted(read, self.pid as usize as *mut c_void)) };
        let mut scratch = vec![0u128; SCRATCH / 16];
        let setting = Setting { thread_pointer: r.fs_base, scratch: scratch.as_mut_ptr().cast(), ..Setting::EMPTY };
        let mut words = vec![0; 64];
        // SAFETY: the scratch memory has SCRATCH bytes; the facts outlive the walk.
        unsafe { walk(cursor, &mut environment, &mut reader, &mut words, &setting) };
        environment.caller
    }

    fn judge(&self, options: &[&str]) -> bool {
        println!("{options:?}: {} right, resynced {:?}", self.right, self.resynced);
        for (name, (count, text)) in &self.lost {
            println!("  {count} at {name}: {text}");
        }
        assert!(self.right > 1000, "{options:?}: {} callers were compared", self.right);
        self.lost.is_empty()
    }
}

/// One step of the plugin's, and the frame that it leads to.
struct Once {
    claim: Option<Claim>,
    caller: Option<(u64, Option<u64>)>,
}

impl Env for Once {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        Rule::end().pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let claim = match self.claim.take() {
            Some(claim) => Claimed::By(claim),
            None => {
                self.caller = Some((cursor.regs.pc, cursor.regs.get(RBP)));
                Claimed::No
            }
        };
        Look { claim, ..Look::at(self.rule(cursor, reader)) }
    }
}

impl Names for Once {}
impl Replay for Once {}
