//! The GIL, over synthetic memory in each version's layout.

mod world;

use uunwind_core::plugin::{View, ABI, LOCK_HELD, LOCK_NONE, LOCK_UNKNOWN, LOCK_WAITING, STACK_CUT};
use uunwind_core::regs::COUNT;
use uunwind_python::facts::Plain;
use uunwind_python::lock::{LOCK_ABSENT, LOCK_NOT_DESCRIBED, LOCK_OPTIONAL, LOCK_RUNTIME};
use world::host::{table, Walk};
use world::python::{
    Process, Version, ALL, BIAS, EVAL, EVAL_END, PYTHON_3_11, RUNTIME, STACK, THREAD_POINTER, TSD_OFFSET, TSTATE,
};

/// Code of the C library: a system call, and something else.
const LIBC: u64 = 0x7100_0000_0000;
const AFTER_CALL: u64 = LIBC + 0x102;
const ELSEWHERE: u64 = LIBC + 0x200;
const RSI: usize = 4;
const RDI: usize = 5;
const R12: usize = 12;
/// `FUTEX_WAIT_BITSET` and `FUTEX_WAKE`, both private and the first by the real-time clock.
const WAIT: u64 = 9 | 128 | 256;
const WAKE: u64 = 1 | 128;
/// Where `take_gil` lies in the runtime, in two parts: file addresses.
const TAKING: [[u64; 2]; 2] = [[EVAL + 0x4000, EVAL + 0x4200], [EVAL + 0x6000, EVAL + 0x6020]];
/// Code of the runtime that is not `take_gil`'s.
const RUNTIME_CODE: u64 = BIAS + EVAL + 0x5000;

struct Thread {
    process: Process,
    registers: [u64; COUNT],
    pc: u64,
    gil: u64,
    /// [`View::stack`], and whether the walk has not come further.
    stack: Vec<u64>,
    cut: bool,
}

impl Thread {
    /// A thread that holds the GIL, or does not, and runs C.
    fn new(version: &'static Version, holds: bool) -> Thread {
        let mut process = Process::new(version);
        process.memory.map(LIBC, 0x1000);
        process.memory.put(LIBC + 0x100, &[0x0f, 0x05]);
        let lock = version.facts.lock;
        let runtime_gil = BIAS + RUNTIME + u64::from(lock.gil);
        let gil = if lock.kind == LOCK_RUNTIME {
            let holder = BIAS + RUNTIME + u64::from(version.facts.runtime_current);
            process.memory.put64(holder, if holds { TSTATE } else { 0 });
            runtime_gil
        } else {
            let interpreter = process.allocate(0x1000);
            let gil = process.allocate(216);
            // `enabled`, in a build that can do without.
            process.memory.put32(gil, u32::from(lock.kind == LOCK_OPTIONAL));
            process.memory.put64(TSTATE + u64::from(lock.interpreter), interpreter);
            process.memory.put64(interpreter + u64::from(lock.gil), gil);
            let bit = lock.holds_mask & lock.holds_mask.wrapping_neg();
            process.memory.put32(TSTATE + u64::from(lock.holds), if holds { bit } else { !lock.holds_mask });
            gil
        };
        Thread { process, registers: [0; COUNT], pc: ELSEWHERE, gil, stack: Vec::new(), cut: false }
    }

    /// How it stands with this stack, where the code of `take_gil` is known. What an earlier call of `take_gil` has
    /// left there lies on its stack and in a register.
    fn state_on(mut self, stack: &[u64], cut: bool) -> u32 {
        let mut facts = self.process.version.facts;
        facts.lock.taking[..2].copy_from_slice(&TAKING);
        (self.pc, self.stack, self.cut) = (stack[0], stack.to_vec(), cut);
        self.registers[R12] = self.gil + 80;
        let cond = self.gil + u64::from(facts.lock.wait_start);
        self.process.memory.put64(STACK - 0x800 + 0x140, cond);
        self.state_with(facts.as_bytes(), THREAD_POINTER)
    }

    /// It is in a system call, or right after it, with these arguments.
    fn in_call(mut self, after: bool, address: u64, operation: u64) -> Thread {
        self.pc = if after { AFTER_CALL } else { AFTER_CALL - 2 };
        (self.registers[RDI], self.registers[RSI]) = (address, operation);
        self
    }

    fn state(&self) -> u32 {
        self.state_with(self.process.version.facts.as_bytes(), THREAD_POINTER)
    }

    fn state_with(&self, facts: &[u8], thread_pointer: u64) -> u32 {
        // SAFETY: the entry returns a static table for this ABI.
        let lock = unsafe { (*uunwind_python::uu_plugin(ABI)).lock }.expect("a function");
        let mut walk = Walk::new(&self.process.memory);
        let mut view = View {
            exact: 1,
            pc: self.pc,
            sp: STACK - 0x800,
            registers: self.registers,
            known: 0xffff,
            facts: facts.as_ptr(),
            facts_len: facts.len(),
            bias: BIAS,
            thread_pointer,
            tsd_offset: TSD_OFFSET,
            range_start: BIAS + EVAL,
            range_end: BIAS + EVAL_END,
            stack: self.stack.as_ptr(),
            stack_len: self.stack.len(),
            flags: if self.cut { STACK_CUT } else { 0 },
            host: table(),
            walk: std::ptr::from_mut(&mut walk).cast(),
            ..View::new()
        };
        // SAFETY: the view is complete, and its pointers outlive the call.
        unsafe { lock(&mut view) }
    }
}

#[test]
fn the_holder_is_recognised_in_every_version() {
    for version in ALL {
        let python = version.facts.python;
        assert_eq!(Thread::new(version, true).state(), LOCK_HELD, "{python:x}");
        assert_eq!(Thread::new(version, false).state(), LOCK_NONE, "{python:x}");
    }
}

#[test]
fn who_waits_is_recognised_by_the_address_that_it_waits_at() {
    for version in ALL.into_iter().filter(|version| version.facts.lock.waits == 0) {
        let python = version.facts.python;
        let new = |holds| Thread::new(version, holds);
        let gil = new(false).gil;
        // `_gil_runtime_state`, or what follows its first word.
        let (first, whole) = (gil + u64::from(version.facts.lock.wait_start) - 32, gil);
        for (at, operation, wanted) in [
            (first + 32, WAIT, LOCK_WAITING),
            (first + 76, WAIT, LOCK_WAITING),
            (first + 120, WAIT, LOCK_WAITING),
            // A mutex is also locked by a thread that gives the GIL up.
            (first + 80, 128, LOCK_UNKNOWN),
            (first + 168, 128, LOCK_UNKNOWN),
            // It wakes another one up.
            (first + 32, WAKE, LOCK_UNKNOWN),
            (first + 208, WAIT, LOCK_NONE),
            (whole - 8, WAIT, LOCK_NONE),
        ] {
            for after in [false, true] {
                let found = new(false).in_call(after, at, operation).state();
                assert_eq!(found, wanted, "{python:x}: {:#x}, operation {operation}", at.wrapping_sub(gil));
                assert_eq!(new(true).in_call(after, at, operation).state(), LOCK_HELD, "{python:x}");
            }
        }
    }
}

#[test]
fn from_3_15_on_who_waits_says_so() {
    for version in ALL.into_iter().filter(|version| version.facts.lock.waits != 0) {
        let mut thread = Thread::new(version, false);
        thread.process.memory.put32(TSTATE + u64::from(version.facts.lock.waits), 1);
        assert_eq!(thread.state(), LOCK_WAITING);
        // A call that only looks like waiting.
        let gil = thread.gil;
        assert_eq!(Thread::new(version, false).in_call(true, gil + 32, WAIT).state(), LOCK_NONE);
    }
}

#[test]
fn between_two_rounds_of_waiting_nothing_is_said() {
    for version in ALL.into_iter().filter(|version| version.facts.lock.waits == 0) {
        let mut in_runtime = Thread::new(version, false);
        in_runtime.pc = BIAS + EVAL + 8;
        let mut in_register = Thread::new(version, false);
        in_register.registers[R12] = in_register.gil + 80;
        let mut on_stack = Thread::new(version, false);
        on_stack.process.memory.put64(STACK - 0x800 + 0x140, on_stack.gil + 32);
        for (thread, what) in [(in_runtime, "runtime"), (in_register, "register"), (on_stack, "stack")] {
            assert_eq!(thread.state(), LOCK_UNKNOWN, "{:x}: {what}", version.facts.python);
        }
    }
}

/// Threads that do not hold it, each at a place of the code.
#[test]
fn where_the_code_that_waits_is_known_a_thread_waits_or_does_not() {
    let waits = BIAS + TAKING[0][0] + 0x80;
    let in_part = BIAS + TAKING[1][1] - 1;
    let after = BIAS + TAKING[0][1];
    for version in ALL.into_iter().filter(|version| version.facts.lock.waits == 0) {
        for (what, stack, cut, wanted) in [
            ("in the function", vec![waits, RUNTIME_CODE], false, LOCK_WAITING),
            ("in a part of it", vec![in_part, RUNTIME_CODE], false, LOCK_WAITING),
            ("in the C library, for it", vec![ELSEWHERE, ELSEWHERE + 8, waits, RUNTIME_CODE], true, LOCK_WAITING),
            ("in what it calls", vec![ELSEWHERE, RUNTIME_CODE, RUNTIME_CODE + 8, waits], true, LOCK_WAITING),
            (
                "in the C library, for the clock of a debug build",
                [vec![ELSEWHERE], vec![RUNTIME_CODE; 6], vec![waits]].concat(),
                true,
                LOCK_WAITING,
            ),
            ("after it", vec![after, RUNTIME_CODE], false, LOCK_NONE),
            ("in other code of the runtime", vec![RUNTIME_CODE; 16], false, LOCK_NONE),
            ("the same, on a stack that ends early", vec![RUNTIME_CODE; 7], true, LOCK_NONE),
            ("in code that the runtime calls", vec![ELSEWHERE, RUNTIME_CODE, ELSEWHERE], false, LOCK_NONE),
            (
                "in code that was called by what it calls",
                vec![ELSEWHERE, RUNTIME_CODE, ELSEWHERE, waits],
                false,
                LOCK_NONE,
            ),
            ("in code without the runtime", vec![ELSEWHERE; 3], false, LOCK_NONE),
            ("on a stack that ends too early", vec![ELSEWHERE; 3], true, LOCK_UNKNOWN),
        ] {
            let python = version.facts.python;
            assert_eq!(Thread::new(version, false).state_on(&stack, cut), wanted, "{python:x}: {what}");
            assert_eq!(Thread::new(version, true).state_on(&stack, cut), LOCK_HELD, "{python:x}: {what}");
        }
    }
}

#[test]
fn a_gil_that_is_not_in_use_is_neither_held_nor_waited_for() {
    let optional: Vec<_> = ALL.into_iter().filter(|version| version.facts.lock.kind == LOCK_OPTIONAL).collect();
    assert_eq!(optional.len(), 3, "free-threaded builds");
    for version in optional {
        for holds in [false, true] {
            let mut thread = Thread::new(version, holds);
            thread.process.memory.put32(thread.gil, 0);
            assert_eq!(thread.state(), LOCK_NONE, "{:x}", version.facts.python);
        }
    }
}

#[test]
fn what_is_not_known_is_said_to_be_unknown() {
    let thread = Thread::new(&PYTHON_3_11, true);
    let mut facts = PYTHON_3_11.facts;
    facts.lock.kind = LOCK_NOT_DESCRIBED;
    assert_eq!(thread.state_with(facts.as_bytes(), THREAD_POINTER), LOCK_UNKNOWN);
    facts.lock.kind = LOCK_ABSENT;
    assert_eq!(thread.state_with(facts.as_bytes(), THREAD_POINTER), LOCK_NONE);
    assert_eq!(thread.state_with(&facts.as_bytes()[..40], THREAD_POINTER), LOCK_UNKNOWN, "no facts");
}
