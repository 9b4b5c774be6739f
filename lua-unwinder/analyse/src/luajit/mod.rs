//! LuaJIT 2.1: the addresses of its VM's parts, and the offsets in its state, read from the VM's machine code. LuaJIT's
//! own assembler makes the VM, and no compiler, so its instructions are the same in every build, except for the numbers
//! that are read here. Source: <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/vm_x64.dasc>.

mod code;

#[cfg(test)]
mod tests;

use code::Code;
use uunwind_elf::{Elf, Function};
use uunwind_lua::facts::Plain;
use uunwind_lua::facts::{FactsHead, FAMILY_LUAJIT};
use uunwind_lua::luajit::facts::{Facts, ASK, ENTER, LEAVE, PLACES};

/// CFA minus stack pointer inside the VM, as its unwind entry has it (`CFRAME_SIZE`), in bytes.
const FRAME: u64 = 80;
/// Sizes of a VM in bytes. All that were examined have 16 to 17 KiB.
const SIZES: std::ops::RangeInclusive<u64> = 8 << 10..=64 << 10;
/// `vmstate` while the interpreter or a side exit executes, as stored (`~LJ_VMST_INTERP`, `~LJ_VMST_EXIT`).
const STATE_INTERPRETER: u32 = !0;
const STATE_EXIT: u32 = !3;

/// Facts of an object that holds a LuaJIT. `Ok(None)`: it only contains the name of one. Errors: the reason why it is
/// not served.
pub fn analyse(elf: &dyn Elf) -> Result<Option<Vec<u8>>, String> {
    let mut other_frame = None;
    for function in elf.functions().iter().filter(|f| SIZES.contains(&(f.span.end - f.span.start))) {
        let Some(code) = Code::read(elf, function.span) else { continue };
        if code.find_all(&ENTER).len() < 3 || code.find_all(&LEAVE).is_empty() {
            continue;
        }
        if function.cfa_offset != FRAME {
            other_frame = Some(function.cfa_offset);
            continue;
        }
        return facts(&code, function).map(|facts| Some(facts.as_bytes().to_vec()));
    }
    match other_frame {
        Some(offset) => Err(format!("this is LuaJIT with a C frame of {offset} bytes (a fork?)")),
        None if elf.symbol("luaJIT_setmode").is_some() => {
            Err("this is LuaJIT without unwind information for its VM (64-bit references, 2.1, are needed)".into())
        }
        // This object only contains its name; another one may hold the VM.
        None => Ok(None),
    }
}

fn facts(code: &Code, function: &Function) -> Result<Facts, String> {
    let dispatch = code
        .same_operand(&[0x49, 0x81, 0xc6])
        .ok_or("this is LuaJIT with 32-bit references (2.0, or built without GC64)")?;
    let missing = |what: &str| format!("this is LuaJIT with a VM that has no {what}");
    // Operands are relative to r14; the facts, to the global state.
    let relative = |operand: u32| operand.wrapping_add(dispatch);
    let vmstate = code.store_of(STATE_INTERPRETER).map(relative).ok_or_else(|| missing("vmstate"))?;
    let mut facts = Facts {
        head: FactsHead::of::<Facts>(FAMILY_LUAJIT),
        start: function.span.start,
        end: function.span.end,
        enter: places(code, &ENTER)?,
        leave: places(code, &LEAVE)?,
        callback: 0,
        exit_start: 0,
        exit_stored: 0,
        exit_restored: 0,
        exit_end: 0,
        helpers_start: 0,
        helpers_end: 0,
        ask: 0,
        dispatch,
        vmstate,
        cur_l: 0,
        jit_base: 0,
        trace: 0,
        parent: 0,
        exitno: 0,
        lead: 0,
    };
    // mov [r14+cur_L], rbp; mov dword [r14+vmstate], interpreter: the end of each entry.
    let state = [&[0x41, 0xc7, 0x86][..], &vmstate.wrapping_sub(dispatch).to_le_bytes(), &[0xff; 4]].concat();
    let current = code.find_all(&state).into_iter().find_map(|at| {
        let at = at.checked_sub(7)?;
        (code.bytes(at, 3)? == [0x49, 0x89, 0xae]).then(|| code.operand(at + 3)).flatten()
    });
    facts.cur_l = current.map(relative).ok_or_else(|| missing("cur_L"))?;
    // The same pushes without the first, anywhere but inside a whole set of them.
    let callback =
        code.find_all(&ENTER[1..]).into_iter().find(|at| *at > 0 && code.bytes(at - 1, 1) != Some(&ENTER[..1]));
    facts.callback = callback.map_or(0, |at| code.address(at));
    facts.lead = code.find(&ENTER, 0).map_or(0, |at| lead(code, at) as u32);
    exits(code, &mut facts, relative)?;
    helpers(code, &mut facts, callback)?;
    // One wrong offset would make all answers wrong.
    let sane = [facts.vmstate, facts.cur_l, facts.jit_base, facts.trace, facts.parent, facts.exitno]
        .iter()
        .all(|offset| *offset < dispatch);
    if !sane || dispatch > 1 << 16 {
        return Err("this is LuaJIT whose VM could not be read".into());
    }
    Ok(facts)
}

/// Size in bytes of the `endbr64` before an offset; 0: there is none.
fn lead(code: &Code, offset: usize) -> usize {
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let before = offset.checked_sub(ENDBR.len()).and_then(|at| code.bytes(at, ENDBR.len()));
    if before == Some(&ENDBR) {
        ENDBR.len()
    } else {
        0
    }
}

/// All addresses of some instructions.
fn places(code: &Code, instructions: &[u8]) -> Result<[u64; PLACES], String> {
    let found = code.find_all(instructions);
    let mut places = [0; PLACES];
    if found.len() > PLACES {
        return Err(format!("this is LuaJIT with {} ways in or out", found.len()));
    }
    for (place, at) in places.iter_mut().zip(found) {
        *place = code.address(at);
    }
    Ok(places)
}

/// Fills in the facts that only a VM with a JIT compiler has: those of the handler of side exits.
fn exits(code: &Code, facts: &mut Facts, relative: impl Fn(u32) -> u32) -> Result<(), String> {
    // push r13, r12, r11, r10, r9, r8, rdi, rsi, rbp; lea rbp, [rsp+88]; push rbp, rbx, rdx, rcx, rax
    const START: [u8; 25] = [
        0x41, 0x55, 0x41, 0x54, 0x41, 0x53, 0x41, 0x52, 0x41, 0x51, 0x41, 0x50, 0x57, 0x56, 0x55, 0x48, 0x8d, 0x6c,
        0x24, 0x58, 0x55, 0x53, 0x52, 0x51, 0x50,
    ];
    // mov r13, [rcx-8]; mov r12, [rcx]; mov rsp, rcx
    const END: [u8; 10] = [0x4c, 0x8b, 0x69, 0xf8, 0x4c, 0x8b, 0x21, 0x48, 0x89, 0xcc];
    let Some(start) = code.find(&START, 0) else { return Ok(()) };
    let missing = |what: &str| format!("this is LuaJIT whose side exits have no {what}");
    let end = code.find(&END, start).ok_or_else(|| missing("end"))?;
    // mov dword [r14+vmstate], exit; mov [r14+exitno], eax; mov [r14+parent], ecx
    let state = [&[0x41, 0xc7, 0x86][..], &facts.vmstate.wrapping_sub(facts.dispatch).to_le_bytes()].concat();
    let at = code.find(&[&state[..], &STATE_EXIT.to_le_bytes()].concat(), start).ok_or_else(|| missing("state"))?;
    let stored = |at: usize, register: u8| match code.bytes(at, 3) {
        Some([0x41, 0x89, modrm]) if *modrm == register => code.operand(at + 3),
        _ => None,
    };
    facts.exitno = stored(at + 11, 0x86).map(&relative).ok_or_else(|| missing("number"))?;
    facts.parent = stored(at + 18, 0x8e).map(&relative).ok_or_else(|| missing("trace"))?;
    facts.exit_stored = code.address(at + 25);
    // mov qword [r14+jit_base], 0; call lj_trace_exit
    let cleared = code.find(&[0x49, 0xc7, 0x86], at).ok_or_else(|| missing("jit_base"))?;
    let call = code.find_call_out(cleared).filter(|call| *call < end).ok_or_else(|| missing("call"))?;
    facts.jit_base = code.operand(cleared + 3).map(&relative).ok_or_else(|| missing("jit_base"))?;
    facts.exit_restored = code.address(call + 5);
    facts.exit_end = code.address(end + END.len());
    facts.exit_start = code.address(start - lead(code, start));
    // mov rcx, [r14+trace]; mov rcx, [rcx+rax*8]
    let trace = code.find_all(&[0x49, 0x8b, 0x8e]).into_iter().find_map(|at| {
        let indexed = matches!(code.bytes(at + 7, 4)?, [0x48, 0x8b, 0x04 | 0x0c, 0xc1]);
        indexed.then(|| code.operand(at + 3)).flatten()
    });
    facts.trace = trace.map(relative).ok_or_else(|| missing("traces"))?;
    Ok(())
}

/// Fills in the facts of the leaf functions, which lie between the last call of the exit code and the entry of FFI
/// callbacks.
fn helpers(code: &Code, facts: &mut Facts, callback: Option<usize>) -> Result<(), String> {
    // vm_mod: movaps xmm5, xmm0; divsd xmm0, xmm1
    const MODULO: [u8; 7] = [0x0f, 0x28, 0xe8, 0xf2, 0x0f, 0x5e, 0xc1];
    // The first instructions of vm_floor: mov64 rax, 0x7fffffffffffffff; movq xmm2, rax
    const FLOOR: [u8; 12] = [0x48, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x66, 0x48];
    let refused = || "this is LuaJIT whose arithmetic functions could not be found".to_string();
    let modulo = code.find_all(&MODULO).into_iter().next_back().ok_or_else(refused)?;
    let end = callback.unwrap_or(code.len());
    // No call out of the VM follows the first of them.
    let first = code
        .find_all(&FLOOR)
        .into_iter()
        .filter(|at| *at < modulo)
        .find(|at| code.find_call_out_in(*at, end).is_none());
    let first = first.ok_or_else(refused)?;
    if modulo >= end {
        return Err(refused());
    }
    facts.helpers_start = code.address(first - lead(code, first));
    facts.helpers_end = code.address(end);
    facts.ask = code.find(&ASK, first).filter(|at| *at < end).map_or(0, |at| code.address(at));
    Ok(())
}
