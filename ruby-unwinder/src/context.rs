//! The execution context (`rb_execution_context_t`) of the walked thread: one for each thread and each Fiber. The
//! variable that holds its address is thread-local: `ruby_current_ec` in
//! <https://github.com/ruby/ruby/blob/v3_1_2/vm.c>.

use crate::facts::{Facts, CONTEXT_AT, CONTEXT_BY_WORD, CONTEXT_IN_BLOCK, CONTEXT_IN_BLOCK_AT};
use uunwind_core::plugin::guest::Guest;

/// The thread's execution context, as far as a walk needs it.
pub struct Context {
    /// The innermost control frame (`cfp`).
    pub frame: u64,
    /// The end of the VM stack, where the array of control frames begins.
    pub end: u64,
    /// The innermost tag, on the native stack.
    pub tag: u64,
}

/// Limit of the VM stack in words: 8 GiB.
const STACK_LIMIT: u64 = 1 << 30;

impl Context {
    /// The walked thread's. `None`: it has none, or it cannot be read.
    pub fn of(guest: &Guest<'_>, facts: &Facts) -> Option<Context> {
        let ec = guest.word(variable(guest, facts)?)?;
        if ec == 0 || !ec.is_multiple_of(8) {
            return None;
        }
        let mut words = [0; 4];
        guest.words(ec, [facts.ec_stack, facts.ec_stack_size, facts.ec_frame, facts.ec_tag], &mut words)?;
        let [stack, size, frame, tag] = words;
        if stack == 0 || size > STACK_LIMIT {
            return None;
        }
        let end = stack.checked_add(size * 8)?;
        let within = stack <= frame && frame < end && end.wrapping_sub(frame).is_multiple_of(facts.frame_bytes.into());
        within.then_some(Context { frame, end, tag })
    }
}

/// Address of the variable.
fn variable(guest: &Guest<'_>, facts: &Facts) -> Option<u64> {
    let view = guest.view();
    let module = view.bias.wrapping_add(facts.context_module);
    let offset = match facts.context {
        CONTEXT_IN_BLOCK => {
            let offset = guest.word(module.wrapping_add(8))?;
            return Some(block(guest, guest.word(module)?)?.wrapping_add(offset));
        }
        CONTEXT_IN_BLOCK_AT => return Some(block(guest, guest.word(module)?)?.wrapping_add(facts.context_offset)),
        CONTEXT_BY_WORD => guest.word(module)?,
        CONTEXT_AT => facts.context_offset,
        _ => return None,
    };
    Some(view.thread_pointer.wrapping_add(offset))
}

/// The module's block of thread-local storage, found as `__tls_get_addr` finds it, but nothing is allocated: a thread
/// without a block has never run Ruby. `dtv_t` in
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-dtv.h;hb=refs/tags/glibc-2.39>: entries of 16
/// bytes, indexed by module id; the one before the first holds their number.
fn block(guest: &Guest<'_>, module: u64) -> Option<u64> {
    /// `TLS_DTV_UNALLOCATED`.
    const UNALLOCATED: u64 = u64::MAX;
    const DTV: u64 = 8;
    const ENTRY: u64 = 16;
    // `dtv` is the second word of `tcbhead_t`.
    let dtv = guest.word(guest.view().thread_pointer.wrapping_add(DTV))?;
    let count = guest.word(dtv.wrapping_sub(ENTRY))?;
    if module == 0 || module > count {
        return None;
    }
    let block = guest.word(dtv.wrapping_add(module.wrapping_mul(ENTRY)))?;
    (block != 0 && block != UNALLOCATED).then_some(block)
}
