//! Activations of 3.8 to 3.10: the frame object is in a register, and the chain may say something else.

mod world;

use std::mem::size_of;
use uunwind_core::plugin::{View, ABI, OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES};
use uunwind_python::facts::{Facts, Plain, CHAIN_FRAME_OBJECT, FACTS_VERSION, STATE_KEY, TABLE_PYTHON_38};
use uunwind_python::lines::NOT_BEGUN;
use world::host::{self, Walk};
use world::python::{BIAS, CODE_TYPE, EVAL, EVAL_END, PYTHON_3_11, RUNTIME, STACK, THREAD_POINTER, TSD_OFFSET, TSTATE};
use world::Memory;

const HEAP: u64 = 0x6000_0000_2000;
const FRAME_TYPE: u64 = 0x44_0000;
const SIZE: u64 = 0x200;
const RBX: usize = 3;
const R15: usize = 15;

/// As the headers of 3.9.18 have it.
fn facts() -> Facts {
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        python: 0x0309_0000,
        chain: CHAIN_FRAME_OBJECT,
        frame_type: FRAME_TYPE,
        state: STATE_KEY,
        table_kind: TABLE_PYTHON_38,
        runtime_finalizing: 16,
        runtime_current: 568,
        runtime_tss: 584,
        tstate_thread_id: 176,
        tstate_entry: 24,
        frame_bytes: 120,
        frame_code: 32,
        frame_previous: 24,
        frame_instruction: 104,
        frame_unit: 1,
        frame_generator: 96,
        frame_state: 116,
        frame_executing: 1,
        frame_owner: 0,
        frame_is_entry: 0,
        frame_generator_state: 0,
        code_filename: 104,
        code_qualname: 112,
        code_first_line: 40,
        code_line_table: 120,
        code_bytes: 48,
        code_first_traceable: 40,
        code_instructions: 128,
        ..PYTHON_3_11.facts
    }
}

struct Process {
    memory: Memory,
    free: u64,
}

impl Process {
    fn new() -> Process {
        let mut memory = Memory::default();
        for (at, len) in
            [(BIAS + RUNTIME, 0x1000), (THREAD_POINTER, 0x1000), (STACK - 0x4000, 0x4000), (TSTATE, 0x9000)]
        {
            memory.map(at, len);
        }
        memory.put64(BIAS + RUNTIME + 568, TSTATE);
        memory.put64(TSTATE + 176, THREAD_POINTER);
        Process { memory, free: HEAP }
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        self.free += bytes;
        self.free - bytes
    }

    fn bytes(&mut self, len: u64) -> u64 {
        let at = self.allocate(0x80);
        self.memory.put64(at + 16, len);
        at
    }

    /// A frame of a function with this name, at position 6.
    fn frame(&mut self, name: &str, back: u64, executing: bool, generator: bool) -> u64 {
        let (code, text, frame) = (self.allocate(0x100), self.allocate(0x80), self.allocate(0x180));
        self.memory.put64(text + 16, name.len() as u64);
        self.memory.put32(text + 32, 1 << 2 | 1 << 5 | 1 << 6);
        self.memory.put(text + 48, name.as_bytes());
        let (instructions, table) = (self.bytes(40), self.bytes(0));
        for (offset, word) in
            [(8, BIAS + CODE_TYPE), (48, instructions), (104, text), (112, text), (120, table), (40, 9)]
        {
            self.memory.put64(code + offset, word);
        }
        for (offset, word) in [(8, BIAS + FRAME_TYPE), (24, back), (32, code), (96, u64::from(generator))] {
            self.memory.put64(frame + offset, word);
        }
        self.memory.put32(frame + 104, 6);
        self.memory.put(frame + 116, &[u8::from(executing)]);
        frame
    }

    /// The answers and names (with the position, if it is not 6) for activations, from the leaf on: whether it is
    /// interrupted, how far from the entry, and what a register holds.
    fn show(&self, current: u64, natives: &[(bool, u64, usize, u64)]) -> Vec<(u32, Vec<String>)> {
        let mut memory = self.memory.clone();
        memory.put64(TSTATE + 24, current);
        let mut walk = Walk::new(&memory);
        let facts = facts();
        #[repr(align(16))]
        struct Scratch([u8; SCRATCH_BYTES]);
        let mut scratch = Scratch([0; SCRATCH_BYTES]);
        let mut shown = Vec::new();
        for (index, (exact, distance, register, held)) in natives.iter().enumerate() {
            let cfa = STACK - 0x4000 + SIZE * (index as u64 + 1);
            let before = walk.emitted.len();
            let mut view = View {
                exact: u32::from(*exact),
                pc: BIAS + EVAL + distance,
                sp: cfa - SIZE,
                cfa,
                function_start: BIAS + EVAL,
                function_end: BIAS + EVAL_END,
                known: 0xffff,
                plugin: host::PLUGIN,
                facts: facts.as_bytes().as_ptr(),
                facts_len: size_of::<Facts>(),
                bias: BIAS,
                scratch: scratch.0.as_mut_ptr(),
                thread_pointer: THREAD_POINTER,
                tsd_offset: TSD_OFFSET,
                host: host::table(),
                walk: std::ptr::from_mut(&mut walk).cast(),
                ..View::new()
            };
            view.registers[*register] = *held;
            // SAFETY: the entry returns a static table for this ABI; the view is complete, its pointers outlive the
            // call.
            let answer = unsafe { (*uunwind_python::uu_plugin(ABI)).overlay.expect("an overlay")(&mut view) } & 3;
            let names = walk.emitted[before..].iter().map(|(name, position)| {
                let name = &walk.names[*name as usize - 1].name;
                if *position == 6 {
                    name.clone()
                } else {
                    format!("{name} at {position}")
                }
            });
            shown.push((answer, names.collect()));
        }
        shown
    }
}

const IN: u64 = 0x2000;

fn hosts(names: &[&str]) -> (u32, Vec<String>) {
    (OVERLAY_INTERPRETER, names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn each_activation_hosts_the_frame_in_its_register() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, true, false);
    for register in [RBX, R15] {
        let shown = p.show(f, &[(false, IN, register, f), (false, IN, register, main)]);
        assert_eq!(shown, [hosts(&["f"]), hosts(&["main"])]);
    }
    assert_eq!(p.show(f, &[(true, IN, RBX, f), (false, IN, RBX, main)]), [hosts(&["f"]), hosts(&["main"])]);
}

#[test]
fn an_interrupted_activation_without_registers_of_its_own_hosts_nothing() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, false, false);
    // Its frame is not linked yet, and the register is the caller's, which is another activation's.
    assert_eq!(p.show(main, &[(true, 0x10, RBX, main), (false, IN, RBX, main)]), [hosts(&[]), hosts(&["main"])]);
    // Its frame is linked, and nothing ran in it.
    assert_eq!(p.show(f, &[(true, 0x50, RBX, f), (false, IN, RBX, main)]), [hosts(&[]), hosts(&["main"])]);
    // It has taken its frame out of the chain.
    assert_eq!(p.show(main, &[(false, IN, RBX, f), (false, IN, RBX, main)]), [hosts(&[]), hosts(&["main"])]);
}

#[test]
fn the_frame_that_the_caller_made_tells_whose_registers_these_are() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, false, false);
    // Far from the entry by its address, the register is the outer activation's still: the caller's own register, which
    // the prologue has saved, holds the frame that is about to be linked.
    let natives = [(true, IN, RBX, main), (false, IN, RBX, main)];
    p.memory.put64(STACK - 0x4000 + SIZE - 48, f);
    assert_eq!(p.show(main, &natives), [hosts(&[]), hosts(&["main"])]);
    // It is linked: the saved word is the frame itself.
    assert_eq!(p.show(f, &[(true, IN, RBX, f), (false, IN, RBX, main)]), [hosts(&["f"]), hosts(&["main"])]);
}

#[test]
fn a_frame_that_is_in_no_register_for_a_moment_is_doubted() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, true, false);
    let natives = [(true, IN, RBX, 0), (false, IN, RBX, main)];
    assert_eq!(p.show(f, &natives), [hosts(&[]), hosts(&["main"])]);
    p.memory.put64(STACK - 0x4000 + 0x48, f);
    assert_eq!(p.show(f, &natives), [(OVERLAY_INTERPRETER | OVERLAY_DESYNC, Vec::new()), hosts(&["main"])]);
}

#[test]
fn a_function_that_has_not_begun_is_shown_where_it_has_called_something() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, true, false);
    p.memory.put32(f + 104, u32::MAX);
    let natives = |exact| [(exact, IN, RBX, f), (false, IN, RBX, main)];
    assert_eq!(p.show(f, &natives(false)), [hosts(&[&format!("f at {NOT_BEGUN}")]), hosts(&["main"])]);
    assert_eq!(p.show(f, &natives(true)), [hosts(&[]), hosts(&["main"])]);
}

#[test]
fn generators_without_an_activation_are_shown_and_others_doubted() {
    for (generator, doubt) in [(true, 0), (false, OVERLAY_DESYNC)] {
        let mut p = Process::new();
        let main = p.frame("main", 0, true, false);
        let outer = p.frame("outer", main, false, generator);
        let inner = p.frame("inner", outer, true, true);
        let shown = p.show(inner, &[(false, IN, RBX, inner), (false, IN, RBX, main)]);
        let expected = (OVERLAY_INTERPRETER | doubt, hosts(&["outer", "main"]).1);
        assert_eq!(shown, [hosts(&["inner"]), expected]);
    }
}

/// Where the chain begins with such a generator, an interrupted activation holds the frame that is to be linked, or
/// was.
#[test]
fn a_generator_that_delegates_is_not_taken_for_the_interrupted_activations_frame() {
    const RSI: usize = 4;
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let outer = p.frame("outer", main, true, true);
    let inner = p.frame("inner", outer, false, true);
    for register in [RSI, R15] {
        let shown = p.show(outer, &[(true, 0x50, register, inner), (false, IN, RBX, main)]);
        assert_eq!(shown, [hosts(&[]), hosts(&["outer", "main"])]);
    }
    // Once it is linked, it is the activation's, and nothing ran in it.
    let shown = p.show(inner, &[(true, 0x50, RSI, inner), (false, IN, RBX, main)]);
    assert_eq!(shown, [hosts(&[]), hosts(&["outer", "main"])]);
}

#[test]
fn a_chain_that_was_cut_goes_on_in_the_registers() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let outer = p.frame("outer", 0, false, true);
    let inner = p.frame("inner", outer, true, true);
    let shown = p.show(inner, &[(false, IN, RBX, inner), (false, IN, RBX, main)]);
    assert_eq!(shown, [hosts(&["inner"]), hosts(&["outer", "main"])]);
}

#[test]
fn registers_without_a_frame_are_doubted() {
    let mut p = Process::new();
    let main = p.frame("main", 0, true, false);
    let f = p.frame("f", main, true, false);
    let nothing = (OVERLAY_INTERPRETER | OVERLAY_DESYNC, Vec::new());
    for held in [0, 1, HEAP + 4, HEAP, 0x1234_5678_9abc_def0] {
        let shown = p.show(f, &[(false, IN, RBX, held)]);
        assert!(shown.iter().all(|answer| *answer == nothing), "{held:#x}: {shown:?}");
    }
}
