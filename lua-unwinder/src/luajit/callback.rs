//! Native steps out of code of the FFI for which no unwind entry is right: the thunks of callbacks, and the first and
//! last instructions of the function that calls C.

use super::native::{leave_partial, Saved};
use super::Vm;
use uunwind_core::plugin::Caller;

/// Size in bytes of the page that thunks lie in. It begins with the address of the VM's entry for callbacks
/// (`callback_mcode_init` in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_ccallback.c>).
const PAGE: u64 = 4096;
/// Limit of the size of `lj_vm_ffi_call` in bytes.
const CALL_LIMIT: u64 = 256;
/// Its first instructions (`push rbp; mov rbp, rsp`), in some builds after an `endbr64`; and its last ones (`leave;
/// ret`).
const BEGIN: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const END: [u8; 2] = [0xc9, 0xc3];

/// The first word of the page that `pc` lies in: the address that its thunks jump to, if it is a page of thunks.
pub fn target_of_page(word: impl FnOnce(u64) -> Option<u64>, pc: u64) -> Option<u64> {
    let within = pc % PAGE;
    word(pc.wrapping_sub(within)).filter(|_| within >= 8)
}

/// Steps from a thunk of this VM to its caller. `target`: the address that the thunks of the page jump to. `None`: the
/// current frame is no thunk of this VM.
///
/// A thunk is `mov al, number; jmp`; the code that a group of them jumps to is `push rbp; mov ah, number; mov rbp,
/// global_State; jmp`.
pub fn leave_thunk(vm: &Vm<'_>, caller: &mut Caller, target: u64) -> Option<()> {
    let entry = vm.bias.wrapping_add(vm.facts.callback);
    let is_entry = target == entry || target == entry.wrapping_sub(u64::from(vm.facts.lead));
    if !vm.guest.exact() || vm.facts.callback == 0 || !is_entry {
        return None;
    }
    let mut code = [0; 2];
    if !vm.bytes(vm.guest.view().pc, &mut code) {
        return None;
    }
    match code {
        [0xb0 | 0xeb | 0x55, _] => leave_partial(vm, caller, 8, Saved::InRegisters),
        [0xb4, _] | [0x48, 0xbd] | [0xff, 0x25] => leave_partial(vm, caller, 16, Saved::OnlyRbp),
        _ => None,
    }
}

/// Steps from `lj_vm_ffi_call` to its caller where its unwind entry is wrong, which assumes from the first to the last
/// instruction that rbp is the frame pointer. `pc` is a file address. `None`: the unwind entry is right.
pub fn leave_call(vm: &Vm<'_>, caller: &mut Caller, pc: u64) -> Option<()> {
    if !vm.guest.exact() || pc.wrapping_sub(vm.facts.end) >= CALL_LIMIT {
        return None;
    }
    let at = vm.guest.view().pc;
    let mut code = [0; 8];
    if !vm.bytes(at, &mut code) {
        return None;
    }
    let [first, next] = code.as_chunks::<4>().0 else { return None };
    if *first == BEGIN || (*first == MARK && *next == BEGIN) {
        return leave_partial(vm, caller, 8, Saved::InRegisters);
    }
    let mut before = [0; 2];
    if !vm.bytes(at.wrapping_sub(1), &mut before) {
        return None;
    }
    match before {
        END => leave_partial(vm, caller, 8, Saved::InRegisters),
        [0x55, 0x48] if code.get(..3) == BEGIN.get(1..) => leave_partial(vm, caller, 16, Saved::OnlyRbp),
        _ => None,
    }
}
