//! States that a program registers: what is refused; and frames of a `luaV_execute` whose state the analyse half did
//! not find, which are emitted once the program has registered the state. The structures are in this process, with the
//! layout of 5.4.

use core::ffi::c_void;
use std::sync::Mutex;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::Reader;
use uunwind_core::plugin::ABI;
use uunwind_core::regs::{Regs, RBX, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::walk::{walk, Claim, Claimed, Env, Look, Names, Outcome, Replay, Setting, SCRATCH};
use uunwind_lua::facts::Plain;
use uunwind_lua::facts::{FactsHead, FAMILY_PUC};
use uunwind_lua::puc::facts::{CodeLayout, Extent, Facts, InfoLayout, Location, ProtoLayout, StateLayout};
use uunwind_lua::registered::{REGISTER, UNREGISTER};

/// Serializes the tests: the plugin has one table for the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Address of the loop's code, and size of its frame in bytes.
const TEXT: u64 = 0x40_0000;
const FRAME: i32 = 160;

#[repr(align(16))]
struct Aligned<T>(T);

fn facts() -> Facts {
    Facts {
        head: FactsHead::of::<Facts>(FAMILY_PUC),
        execute: [Extent { start: TEXT, end: TEXT + 0x1000 }, Extent::default(), Extent::default(), Extent::default()],
        resume: [Extent::default(); 2],
        marking: Extent::default(),
        // Not found: this is what the tests are about.
        execute_state: [Location::NONE; 4],
        execute_info: [Location::NONE; 4],
        resume_state: [Location::NONE; 4],
        execute_pc: Location::NONE,
        execute_frame: 0,
        execute_prologue: 0,
        minor: 4,
        state: StateLayout {
            status: 10,
            error_jump: 80,
            ci: 32,
            stack: 48,
            stack_last: 40,
            base_ci: 96,
            saved_pc: 0,
            base: 0,
        },
        info: InfoLayout {
            func: 0,
            previous: 16,
            next: 24,
            saved_pc: 32,
            status: 62,
            status_bytes: 2,
            bytes: 0,
            kind_mask: 2,
            kind_lua: 0,
            fresh_mask: 4,
            fresh: 4,
            tail: 0x20,
            hooked: 8,
            finalizer: 0x80,
        },
        proto: ProtoLayout {
            closure: 24,
            code: 64,
            code_len: 24,
            lines: 88,
            lines_len: 28,
            bases: 96,
            bases_len: 40,
            first_line: 44,
            source: 112,
            ..ProtoLayout::default()
        },
        code: CodeLayout::default(),
        roles: [0; 128],
        execute_marked: 0,
        execute_loop: 0,
    }
}

/// A program with one state, in which a function runs: its structures, in words.
struct Program {
    global: Box<[u64; 4]>,
    state: Box<[u64; 24]>,
    info: Box<[u64; 8]>,
    values: Box<[u64; 32]>,
    closure: Box<[u64; 4]>,
    proto: Box<[u64; 16]>,
    code: Box<[u32; 8]>,
    lines: Box<[u64; 1]>,
    /// The frame of the loop, up to its CFA.
    frame: Box<[u64; FRAME as usize / 8]>,
}

fn at<T: ?Sized>(place: &T) -> u64 {
    core::ptr::from_ref(place).cast::<u8>() as u64
}

impl Program {
    fn new() -> Program {
        let mut p = Program {
            global: Box::new([7; 4]),
            state: Box::new([0; 24]),
            info: Box::new([0; 8]),
            values: Box::new([0; 32]),
            closure: Box::new([0; 4]),
            proto: Box::new([0; 16]),
            code: Box::new([0; 8]),
            lines: Box::new([0x0101_0101_0101_0101]),
            frame: Box::new([0x11; FRAME as usize / 8]),
        };
        let base = p.at_state() + 96;
        (p.state[1], p.state[2], p.state[3], p.state[4]) = (8, at(&p.values[4]), at(&*p.global), at(&*p.info));
        (p.state[5], p.state[6]) = (at(&p.values[20]), at(&*p.values));
        // The base CallInfo, of C.
        (p.state[12], p.state[14], p.state[19]) = (at(&*p.values), 0, 2 << 48);
        // The function, the outermost of its activation, after its third instruction.
        (p.info[0], p.info[2], p.info[4], p.info[7]) = (at(&p.values[2]), base, at(&p.code[3]), 4 << 48);
        (p.values[2], p.values[3]) = (at(&*p.closure), 6);
        p.closure[3] = at(&*p.proto);
        (p.proto[8], p.proto[3], p.proto[11]) = (at(&*p.code), 8 | 8 << 32, at(&*p.lines));
        p.proto[5] = 10 << 32;
        p
    }

    fn at_state(&self) -> u64 {
        at(&*self.state)
    }

    fn register(&self) -> i32 {
        call(REGISTER, self.at_state(), 0)
    }
}

fn call(what: u32, argument: u64, size: usize) -> i32 {
    uunwind_lua::registered::call(what, argument as *mut c_void, size)
}

struct Process {
    claim: Claim,
    frames: u8,
    learned: u32,
}

impl Env for Process {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        self.frames += 1;
        if self.frames == 1 { Rule::simple(RSP, FRAME) } else { Rule::end() }.pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let rule = self.rule(cursor, reader);
        let claim = if self.frames == 1 { Claimed::By(self.claim) } else { Claimed::No };
        Look { claim, ..Look::at(rule) }
    }

    fn function(&mut self, _: &Claim, _: &Cursor, _: &mut Reader<'_>) -> Span {
        Span::sized(TEXT, 0x1000)
    }

    fn learned(&mut self) {
        self.learned += 1;
    }
}

impl Names for Process {
    fn find_name(&mut self, _: u8, _: u64, _: u64) -> u32 {
        1
    }
}

impl Replay for Process {}

/// Lines of the Lua frames that a walk emits, whether it is in doubt, and how often the plugin has learned a place.
fn emitted(program: &Program, facts: &Aligned<Facts>, rbx: u64) -> (Vec<u64>, bool, u32) {
    let bytes = facts.0.as_bytes();
    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    let plugin = unsafe { uunwind_lua::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
    let claim =
        Claim { overlay: plugin.overlay, index: 1, facts: bytes.as_ptr(), facts_len: bytes.len(), ..Claim::NOTHING };
    let mut process = Process { claim, frames: 0, learned: 0 };
    let mut registers = [0; 16];
    (registers[usize::from(RSP)], registers[usize::from(RBX)]) = (at(&*program.frame), rbx);
    let cursor = Cursor { regs: Regs::full(TEXT + 0x100, registers), exact: false };
    let mut scratch = Box::new(Aligned([0u8; SCRATCH]));
    let (scratch, progress, last_walk) = (scratch.0.as_mut_ptr(), std::ptr::null_mut(), std::ptr::null_mut());
    let exchange = std::ptr::null_mut();
    let setting = Setting {
        thread_pointer: 0,
        tsd_offset: 0,
        ucontext: std::ptr::null(),
        scratch,
        exchange,
        progress,
        last_walk,
        keep_outermost: false,
        by_frame_pointer: false,
    };
    let mut words = [0; 64];
    let mut reader = Reader::probed();
    // SAFETY: the scratch memory has SCRATCH bytes; the facts outlive the walk.
    let outcome: Outcome = unsafe { walk(cursor, &mut process, &mut reader, &mut words, &setting) };
    let lines = frames(&words[..outcome.words]).filter_map(|frame| match frame {
        Frame::Semantic { position, .. } => Some(position),
        _ => None,
    });
    (lines.collect(), outcome.desync != 0, process.learned)
}

#[test]
fn a_registered_state_is_found_at_a_place_that_the_analysis_missed() {
    let _alone = ALONE.lock();
    let facts = Aligned(facts());
    let mut program = Program::new();
    program.frame[5] = program.at_state();
    assert_eq!(emitted(&program, &facts, 0), (vec![], true, 0), "not registered");
    assert_eq!(program.register(), 0);
    // Line 10 and three instructions with one line more each.
    assert_eq!(emitted(&program, &facts, 0), (vec![13], false, 1));
    assert_eq!(emitted(&program, &facts, 0), (vec![13], false, 0), "from the learned place");
    let other = Program::new();
    // At the learned place, a state that was not registered.
    program.frame[5] = other.at_state();
    assert_eq!(emitted(&program, &facts, 0), (vec![], true, 0));
    assert_eq!(emitted(&program, &facts, program.at_state()), (vec![13], false, 1), "in a register");
    assert_eq!(emitted(&program, &facts, program.at_state()), (vec![13], false, 0));
    assert_eq!(call(UNREGISTER, program.at_state(), 0), 0);
    assert_eq!(emitted(&program, &facts, program.at_state()), (vec![], true, 0), "unregistered");
}

#[test]
fn what_is_no_state_is_refused() {
    const EINVAL: i32 = -22;
    let _alone = ALONE.lock();
    let program = Program::new();
    let good = program.at_state();
    for garbage in
        [0, 1, 8, good + 1, good + 8, at(&*program.info), at(&*program.values), at(&program.code), u64::MAX, 1 << 47]
    {
        assert_eq!(call(REGISTER, garbage, 0), EINVAL, "{garbage:#x}");
    }
    assert_eq!(call(REGISTER, good, 8), EINVAL, "a size");
    assert_eq!(call(99, good, 0), -38, "no such request");
    type Damage = fn(&mut Program);
    let damages: [(&str, Damage); 6] = [
        ("type", |p| p.state[1] = 7),
        ("no CallInfo", |p| p.state[4] = 0),
        ("a CallInfo that cannot be read", |p| p.state[4] = 0x7000),
        ("a chain that ends elsewhere", |p| p.info[2] = 0),
        ("a chain in a ring", |p| p.info[2] = at(&*p.info)),
        ("no global state", |p| p.state[3] = 0),
    ];
    for (what, damage) in damages {
        let mut program = Program::new();
        damage(&mut program);
        assert_eq!(program.register(), EINVAL, "{what}");
    }
}

#[test]
fn at_most_64_states_are_registered() {
    let _alone = ALONE.lock();
    let programs: Vec<Program> = (0..65).map(|_| Program::new()).collect();
    for program in &programs[..64] {
        assert_eq!((program.register(), program.register()), (0, 0), "twice is once");
    }
    assert_eq!(programs[64].register(), -12, "the table is full");
    assert_eq!(call(UNREGISTER, programs[64].at_state(), 0), -2, "never registered");
    for program in &programs[..64] {
        assert_eq!(call(UNREGISTER, program.at_state(), 0), 0);
        assert_eq!(call(UNREGISTER, program.at_state(), 0), -2, "gone");
    }
    assert_eq!(
        (programs[64].register(), call(UNREGISTER, programs[64].at_state(), 0)),
        (0, 0),
        "an entry is free again"
    );
}

#[test]
fn states_of_lua_5_1_and_of_luajit_are_accepted() {
    let _alone = ALONE.lock();
    let global = [7u64; 32];
    let infos = [0u64; 20];
    let mut state = [0u64; 16];
    (state[1], state[4], state[5]) = (8, at(&global), at(&infos[10]));
    (state[9], state[10]) = (at(&infos[15]), at(&infos[0]));
    assert_eq!((call(REGISTER, at(&state), 0), call(UNREGISTER, at(&state), 0)), (0, 0), "5.1");
    state[5] += 8;
    assert_eq!(call(REGISTER, at(&state), 0), -22, "between two CallInfos");

    let mut global = [0u64; 32];
    let mut state = [0u64; 16];
    (state[1], state[2], global[24]) = (6 << 8, at(&global), at(&state));
    assert_eq!((call(REGISTER, at(&state), 0), call(UNREGISTER, at(&state), 0)), (0, 0), "LuaJIT");
    global[24] = 0;
    assert_eq!(call(REGISTER, at(&state), 0), -22, "no main thread: {}", global[24]);
}
