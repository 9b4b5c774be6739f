//! Instructions as the signal half understands them, against iced's decoder, over the code of this machine's JVMs.

#[path = "../../../tests/src/jvms.rs"]
mod jvms;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};
use std::collections::BTreeMap;
use uunwind_elf::Image;
use uunwind_hotspot::instruction::{decode, Effect, LONGEST};

/// The entry of the dynamic section that has the address of the first function in the code's segment.
const DT_INIT: i64 = 12;
/// Bytes of code that are looked at, of each file.
const BYTES: u64 = 6 << 20;

fn executable() -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let missing = |version| {
        uunwind_skips::skipped("machine code of HotSpot", &format!("this machine has no JDK {version}"));
    };
    let read = |file: std::path::PathBuf| {
        let image = Image::open(&file).ok()?;
        let code = image.segments().iter().find(|segment| segment.kind == 1 && segment.flags & 1 != 0)?;
        // Linkers of before 2018 put tables before the code, in the same segment.
        let start = image.dynamic().value(DT_INIT)?;
        let size = code.address.checked_add(code.file_size)?.checked_sub(start)?;
        let mut bytes = vec![0; size.min(BYTES) as usize];
        image.read_address(start, &mut bytes).then_some((file, bytes))
    };
    let files = jvms::served(missing).into_iter().map(|jvm| jvm.library());
    files.map(|file| read(file.clone()).unwrap_or_else(|| panic!("{}: no code", file.display()))).collect()
}

#[test]
fn lengths_and_effects_are_those_of_another_decoder() {
    for (path, code) in executable() {
        let mut decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        let mut instruction = Instruction::default();
        let (mut right, mut refused) = (0u64, BTreeMap::<String, u64>::new());
        while decoder.can_decode() {
            let at = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                continue;
            }
            let bytes = &code[at..code.len().min(at + LONGEST)];
            let Some((length, effect)) = decode(bytes) else {
                *refused.entry(format!("{:?}", instruction.mnemonic())).or_default() += 1;
                continue;
            };
            let what = || format!("{}: {instruction:?} {:x?}: {effect:?}", path.display(), &bytes[..instruction.len()]);
            assert_eq!(length, instruction.len(), "{}", what());
            assert!(agrees(&instruction, effect, &mut factory), "{}", what());
            right += 1;
        }
        let count: u64 = refused.values().sum();
        println!("{}: {right} instructions, {count} refused: {refused:?}", path.display());
        assert!(count * 200 < right, "{}: {count} refused: {refused:?}", path.display());
    }
}

/// Whether the effect is what the instruction does to rsp and to the flow of control.
fn agrees(instruction: &Instruction, effect: Effect, factory: &mut InstructionInfoFactory) -> bool {
    let info = factory.info(instruction);
    let writes = |register: Register| {
        info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite)
        })
    };
    let flow = match effect {
        Effect::Call => matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall),
        Effect::Return => instruction.flow_control() == FlowControl::Return,
        Effect::Jump(distance) => {
            instruction.flow_control() == FlowControl::UnconditionalBranch
                && instruction.near_branch_target() == instruction.next_ip().wrapping_add_signed(distance.into())
        }
        Effect::JumpRegister(_) | Effect::JumpMemory => instruction.flow_control() == FlowControl::IndirectBranch,
        Effect::Stop => {
            matches!(instruction.flow_control(), FlowControl::Exception | FlowControl::Interrupt)
                || instruction.mnemonic() == iced_x86::Mnemonic::Hlt
        }
        _ => matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend | FlowControl::Interrupt
        ),
    };
    let stack = i64::from(instruction.stack_pointer_increment());
    let moves = match effect {
        Effect::Push(_) | Effect::PushOther => stack == -8,
        Effect::Pop(_) => stack == 8,
        Effect::Add(more) => stack == i64::from(more) || (stack == 0 && writes(Register::RSP)),
        Effect::SetFrame => writes(Register::RBP) && !writes(Register::RSP),
        Effect::ToFrame(_) | Effect::ToRegister(_) | Effect::Other => writes(Register::RSP),
        Effect::Leave => writes(Register::RSP) && writes(Register::RBP),
        Effect::Call | Effect::Return => true,
        Effect::None | Effect::StoreFrame(_) | Effect::RestoreBytecode | Effect::SaveBytecode => !writes(Register::RSP),
        Effect::Jump(_) | Effect::JumpRegister(_) | Effect::JumpMemory | Effect::Stop => !writes(Register::RSP),
        Effect::StoreRax => {
            instruction.mnemonic() == iced_x86::Mnemonic::Mov
                && (instruction.memory_base(), instruction.memory_index()) == (Register::RSP, Register::None)
                && (instruction.memory_displacement64(), instruction.op1_register()) == (0, Register::RAX)
        }
    };
    flow && moves
}
