//! The builtins: machine code that V8 is built with (`v8_Default_embedded_blob_code_`), each a function without unwind
//! information. See <https://github.com/v8/v8/blob/11.3.244/src/snapshot/embedded/embedded-file-writer.cc>.

use crate::flow::{self, Code, Entry};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use uunwind_elf::Image;
use uunwind_v8::facts::{Builtin, Framing, State, ENTRY, HANDLER, INTERPRETER, OTHER, PASSING, PROLOGUE, SAVED};

/// Limit of all builtins' code, in bytes.
const LARGEST: u64 = 16 << 20;
/// Names of kinds of builtins: those whose frame is an interpreted function's, and so on.
const KINDS: [(u32, &[&str]); 4] = [
    (
        INTERPRETER,
        &[
            "InterpreterEntryTrampoline",
            "InterpreterEntryTrampolineForProfiling",
            "InterpreterEnterAtBytecode",
            "InterpreterEnterAtNextBytecode",
        ],
    ),
    (
        PROLOGUE,
        &[
            "BaselineOutOfLinePrologue",
            "BaselineOutOfLinePrologueDeopt",
            "BaselineLeaveFrame",
            "BaselineOrInterpreterEnterAtBytecode",
            "BaselineOrInterpreterEnterAtNextBytecode",
        ],
    ),
    (ENTRY, &["JSEntry", "JSConstructEntry", "JSRunMicrotasksEntry"]),
    (
        PASSING,
        &[
            "JSEntryTrampoline",
            "JSConstructEntryTrampoline",
            "RunMicrotasksTrampoline",
            "CEntry_Return1_ArgvInRegister_NoBuiltinExit",
            "CEntry_Return1_ArgvOnStack_BuiltinExit",
            "CEntry_Return1_ArgvOnStack_NoBuiltinExit",
            "CEntry_Return2_ArgvInRegister_NoBuiltinExit",
            "CEntry_Return2_ArgvOnStack_BuiltinExit",
            "CEntry_Return2_ArgvOnStack_NoBuiltinExit",
            "JSConstructStubGeneric",
            "JSBuiltinsConstructStub",
            "DeoptimizationEntry_Eager",
            "DeoptimizationEntry_Lazy",
        ],
    ),
];

/// Builtins that do not begin with the return address at the stack pointer.
const ENTRIES: [(&str, Entry); 6] = [
    ("BaselineOutOfLinePrologue", Entry::ForCaller),
    ("BaselineLeaveFrame", Entry::InFrame),
    ("InterpreterEnterAtBytecode", Entry::InFrame),
    ("InterpreterEnterAtNextBytecode", Entry::InFrame),
    ("BaselineOrInterpreterEnterAtBytecode", Entry::InFrame),
    ("BaselineOrInterpreterEnterAtNextBytecode", Entry::InFrame),
];

/// All builtins.
pub struct Blob {
    /// File address of the first one.
    pub start: u64,
    /// Bytes of all.
    pub size: u32,
    /// Each of them.
    pub builtins: Vec<Builtin>,
    /// Their rows.
    pub rows: Vec<u8>,
    /// See `Facts::entry_saves`.
    pub entry_saves: [u32; SAVED],
}

/// Finds them. `None`: the file has no symbols of them.
pub fn find(image: &Image) -> Option<Blob> {
    let mut symbols = image.symbols_with_prefix("Builtins_");
    symbols.sort_unstable_by_key(|symbol| symbol.address);
    symbols.dedup_by_key(|symbol| symbol.address);
    let (first, last) = (symbols.first()?, symbols.last()?);
    let start = image.any_symbol("v8_Default_embedded_blob_code_").map_or(first.address, |symbol| symbol.address);
    let size = last.address.checked_add(last.size)?.checked_sub(start).filter(|size| *size <= LARGEST)?;
    let mut bytes = vec![0; size as usize];
    if !image.read_address(start, &mut bytes) {
        return None;
    }
    let address = |name: &str| image.any_symbol(&format!("Builtins_{name}")).map(|symbol| symbol.address);
    // The handlers of bytecodes are the last ones, and begin with that of the first bytecode.
    let handlers = address("WideHandler")?;
    let entries = ENTRIES.map(|(name, entry)| (address(name), entry));
    let mut kinds = Vec::new();
    for (kind, names) in KINDS {
        kinds.extend(names.iter().filter_map(|name| Some((address(name)?, kind))));
    }
    let mut blob = Blob { start, size: size as u32, builtins: Vec::new(), rows: Vec::new(), entry_saves: [0; SAVED] };
    for (index, symbol) in symbols.iter().enumerate() {
        let end = symbols.get(index + 1).map_or(start + size, |next| next.address);
        let from = symbol.address.checked_sub(start)?;
        let code = bytes.get(from as usize..(end - start) as usize)?;
        let named = kinds.iter().find(|(address, _)| *address == symbol.address).map(|(_, kind)| *kind);
        let kind = named.unwrap_or(if symbol.address >= handlers { HANDLER } else { OTHER });
        if kind == ENTRY && blob.entry_saves == [0; SAVED] {
            blob.entry_saves = saves(code, symbol.address)?;
        }
        let rows = u32::try_from(blob.rows.len()).ok().filter(|at| *at < 1 << 28)?;
        blob.builtins.push(Builtin { start: from as u32, rows: kind << 28 | rows });
        let entry = entries.iter().find(|(address, _)| *address == Some(symbol.address));
        let entry = entry.map_or(Entry::Called, |(_, entry)| *entry);
        write_rows(&mut blob.rows, flow::states(&Code { start: symbol.address, bytes: code, entry }));
    }
    Some(blob)
}

/// Writes what [`State`] and [`Framing`] describe.
fn write_rows(rows: &mut Vec<u8>, states: impl IntoIterator<Item = (u32, State)>) {
    let mut last = 0;
    let mut states = states.into_iter().peekable();
    states.next_if(|first| *first == (0, State::Above(0)));
    while let Some((at, state)) = states.next() {
        let mut distance = at - last;
        last = at;
        while distance >= 0x80 {
            rows.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        let framing = states.peek().filter(|next| next.1 == State::Framed);
        let framing = framing.and_then(|next| Some((next.0, Framing { first: state, bytes: next.0 - at }.byte()?)));
        let byte = framing.map_or(state.byte(), |(_, byte)| byte);
        rows.extend([distance as u8, byte]);
        if let Some((framed, _)) = framing {
            last = framed;
            states.next();
        }
    }
}

/// Where a builtin that C++ calls saves rbx, r12, r13, r14 and r15, in bytes below its frame pointer.
fn saves(code: &[u8], start: u64) -> Option<[u32; SAVED]> {
    const ORDER: [Register; SAVED] = [Register::RBX, Register::R12, Register::R13, Register::R14, Register::R15];
    let mut saves = [0; SAVED];
    let mut below = None;
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op0_register() == Register::RBP => below = Some(0u32),
            Mnemonic::Push => {
                below = below.map(|below| below + 8);
                let register = if instruction.op0_kind() == OpKind::Register {
                    instruction.op0_register()
                } else {
                    Register::None
                };
                let place = ORDER.iter().position(|saved| *saved == register).and_then(|at| saves.get_mut(at));
                if let (Some(place), Some(below)) = (place, below) {
                    *place = below;
                }
            }
            Mnemonic::Sub if instruction.op0_register() == Register::RSP => {
                below = below?.checked_add(u32::try_from(instruction.immediate(1)).ok()?);
            }
            Mnemonic::Call => break,
            _ => {}
        }
        if saves.iter().all(|below| *below != 0) {
            break;
        }
    }
    saves.iter().all(|below| *below != 0).then_some(saves)
}
