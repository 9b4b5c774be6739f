//! The places that hold a function's first argument, `L`, and its CallInfo: both values are followed through its first
//! instructions.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};
use uunwind_elf::{Elf, Function, Span};
use uunwind_language::machine_code::{dwarf, each_instruction, is_callee_saved};
use uunwind_lua::puc::facts::{Facts, Location, Places};

/// Limit of instructions that are followed.
const FIRST: usize = 200;
/// DWARF numbers of rdi and rsi.
const RDI: u8 = 5;
const RSI: u8 = 4;

/// The places in a function.
#[derive(Default)]
pub struct Found {
    /// Places of `L`.
    pub state: Places,
    /// Places of `ci`.
    pub info: Places,
    /// Size in bytes of the frame in the function's body; 0: not found.
    pub frame: u32,
    /// Size of the prologue in bytes.
    pub prologue: u32,
    /// For each place that holds its value before the first branch: the bytes from the function's start to there.
    pub held: Vec<(Location, u32)>,
}

impl Found {
    /// Bytes from the function's start to where its frame is complete, and the places `state` and `info` hold their
    /// values.
    pub fn entry(&self, state: Location, info: Location) -> u32 {
        let of = |place: Location| self.held.iter().find(|(held, _)| *held == place).map_or(0, |(_, end)| *end);
        self.prologue.max(of(state)).max(of(info))
    }
}

/// A value that is followed.
struct Value {
    /// Registers that hold it at the current instruction: a bit each, by DWARF number.
    holders: u32,
    /// Callee-saved registers and slots that it was copied to.
    places: Vec<Location>,
}

impl Value {
    fn new(register: Option<u8>) -> Value {
        Value { holders: register.map_or(0, |r| 1 << r), places: Vec::new() }
    }

    fn holds(&self, register: u8) -> bool {
        self.holders & (1 << register) != 0
    }

    fn moved_to(&mut self, register: u8) {
        self.holders |= 1 << register;
        if is_callee_saved(register) {
            self.put(Location::register(register));
        }
    }

    fn put(&mut self, place: Location) {
        if !self.places.contains(&place) {
            self.places.push(place);
        }
    }

    fn places(&self) -> Places {
        let mut places = [Location::NONE; 4];
        for (to, from) in places.iter_mut().zip(&self.places) {
            *to = *from;
        }
        places
    }
}

/// Follows the arguments of a function with the signature of `luaV_execute` or `lua_resume`.
pub fn of(elf: &dyn Elf, function: &Function, facts: &Facts) -> Found {
    let mut state = Value::new(Some(RDI));
    let mut info = Value::new((facts.minor >= 4).then_some(RSI));
    let mut depth = 8i64;
    // CFA minus rbp, once rbp is a frame pointer.
    let mut frame_pointer = None;
    let mut found = Found::default();
    let mut factory = InstructionInfoFactory::new();
    let mut left = FIRST;
    let mut in_prologue = true;
    each_instruction(elf, function.span, &mut |i| {
        left -= 1;
        let grown = growth(i);
        depth += grown;
        if in_prologue && grown > 0 {
            found.frame = u32::try_from(depth).unwrap_or(0);
            found.prologue = u32::try_from(i.next_ip() - function.span.start).unwrap_or(0);
        }
        if i.mnemonic() == Mnemonic::Mov && i.op0_register() == Register::RBP && i.op1_register() == Register::RSP {
            frame_pointer = Some(depth);
        }
        let slot = slot(i, depth, frame_pointer);
        let source = (i.mnemonic() == Mnemonic::Mov && i.op_count() == 2).then(|| dwarf(i.op1_register())).flatten();
        let into = (i.op0_kind() == OpKind::Register).then(|| dwarf(i.op0_register())).flatten();
        let (from_state, from_info) = (source.is_some_and(|s| state.holds(s)), source.is_some_and(|s| info.holds(s)));
        // `ci = L->ci`.
        let loads_info = i.mnemonic() == Mnemonic::Mov
            && i.op1_kind() == OpKind::Memory
            && i.memory_index() == Register::None
            && dwarf(i.memory_base()).is_some_and(|base| state.holds(base))
            && i.memory_displacement64() == u64::from(facts.state.ci);
        let mut written = 0u32;
        for used in factory.info_options(i, InstructionInfoOptions::NO_MEMORY_USAGE).used_registers() {
            let writes = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            if let (true, Some(register)) = (writes, dwarf(used.register().full_register())) {
                written |= 1 << register;
            }
        }
        if i.flow_control() == FlowControl::Call {
            // rax, rdx, rcx, rsi, rdi, r8 to r11.
            written |= 0b0000_1111_0011_0111;
        }
        state.holders &= !written;
        info.holders &= !written;
        if let Some(into) = into {
            if from_state {
                state.moved_to(into);
            }
            if from_info || (loads_info && facts.minor <= 3) {
                info.moved_to(into);
            }
        }
        if let (Some(slot), None) = (slot, into) {
            if from_state {
                state.put(slot);
            }
            if from_info {
                info.put(slot);
            }
        }
        let ends = matches!(
            i.flow_control(),
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Interrupt | FlowControl::Exception
        );
        if in_prologue {
            let end = u32::try_from(i.next_ip() - function.span.start).unwrap_or(0);
            for place in state.places.iter().chain(&info.places) {
                if !found.held.iter().any(|(held, _)| held == place) {
                    found.held.push((*place, end));
                }
            }
        }
        if i.flow_control() != FlowControl::Next {
            in_prologue = false;
        }
        left > 0 && !ends && i.flow_control() != FlowControl::UnconditionalBranch
    });
    found.state = state.places();
    found.info = info.places();
    found
}

/// The places that a function copies a register to: callee-saved registers, and slots of its frame, which has `frame`
/// bytes in its body.
pub fn copies(elf: &dyn Elf, range: Span, register: u8, frame: u32) -> Vec<Location> {
    let mut found = Vec::new();
    each_instruction(elf, range, &mut |i| {
        if i.mnemonic() != Mnemonic::Mov || dwarf(i.op1_register()) != Some(register) {
            return true;
        }
        if i.op0_kind() == OpKind::Register {
            found.extend(dwarf(i.op0_register()).filter(|to| is_callee_saved(*to)).map(Location::register));
        } else if i.memory_base() == Register::RSP {
            found.extend(slot(i, i64::from(frame), None));
        }
        true
    });
    found
}

/// By how many bytes an instruction enlarges the frame.
fn growth(i: &Instruction) -> i64 {
    let on_stack_pointer = i.op_count() == 2
        && i.op0_register() == Register::RSP
        && !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory);
    match i.mnemonic() {
        Mnemonic::Push => 8,
        Mnemonic::Pop => -8,
        Mnemonic::Sub if on_stack_pointer => i.immediate(1) as i64,
        Mnemonic::Add if on_stack_pointer => -(i.immediate(1) as i64),
        _ => 0,
    }
}

/// The stack slot that an instruction stores to. `depth`: CFA minus rsp; `frame_pointer`: CFA minus rbp, if rbp is a
/// frame pointer.
fn slot(i: &Instruction, depth: i64, frame_pointer: Option<i64>) -> Option<Location> {
    if i.op0_kind() != OpKind::Memory || i.memory_index() != Register::None {
        return None;
    }
    let distance = i.memory_displacement64() as i64;
    let below = match i.memory_base() {
        Register::RSP => depth.checked_sub(distance),
        Register::RBP => frame_pointer?.checked_sub(distance),
        _ => None,
    }?;
    u16::try_from(below).ok().filter(|below| *below > 8).map(Location::slot)
}
