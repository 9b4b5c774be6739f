//! Functions in the middle of a deep stack, which are left out: they are counted by the links of their CallInfos,
//! and nothing else of them is read. So the time of a walk is bounded, whether their answers are cached or not.

use super::facts::Facts;
use super::state::{status_in, Info};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::walk::{DEEPEST, MAX_FRAMES};

/// Number of emitted functions of one activation after which some may be left out: by then the walk has reached its
/// limit of frames.
pub const ENOUGH: u32 = MAX_FRAMES + 1;
/// Number of functions from one remembered place to the next.
const STEP: u32 = 1024;

/// A function of an activation: the number of functions before it (nearer to the leaf), and its CallInfo's process
/// address.
#[derive(Clone, Copy)]
struct FunctionAt {
    before: u32,
    address: u64,
}

/// Which functions were left out.
pub enum Omitted {
    /// No function was left out.
    Nothing,
    /// Some, up to this CallInfo's function, which is the next to be emitted.
    Next(u64),
    /// Some, but the chain has changed meanwhile, and the next to be emitted cannot be found.
    Torn,
}

/// Leaves out functions of one activation, from `first` on, as many as the host says.
#[cold]
#[inline(never)]
pub fn omit(guest: &Guest<'_>, facts: &Facts, first: &Info) -> Omitted {
    // 5.1 has no mark where an activation ends. Its stacks have at most 20,000 functions (`LUAI_MAXCALLS`:
    // https://github.com/lua/lua/blob/v5.1.1/luaconf.h).
    if facts.has_no_mark() || facts.info.bytes != 0 {
        return Omitted::Nothing;
    }
    let mut marks = [FunctionAt { before: 0, address: first.address }; 2];
    let Some(count) = count(guest, facts, &mut marks) else { return Omitted::Nothing };
    let omitted = guest.omit(count);
    let from = marks.into_iter().rev().find(|mark| mark.before <= omitted);
    let from = from.unwrap_or(FunctionAt { before: 0, address: first.address });
    match omitted {
        0 => Omitted::Nothing,
        _ => outer(guest, facts, from, omitted).map_or(Omitted::Torn, Omitted::Next),
    }
}

/// The number of the activation's functions, from the one in `marks` on. Sets `marks` to the last two places of
/// those at every [`STEP`]th function. `None`: the chain does not lead to a marked Lua function over Lua functions
/// only.
fn count(guest: &Guest<'_>, facts: &Facts, marks: &mut [FunctionAt; 2]) -> Option<u32> {
    let layout = &facts.info;
    // SAFETY: nothing below uses the guest until the reader is dropped.
    let mut near = unsafe { guest.near() }?;
    let [_, mut last] = *marks;
    loop {
        let [status, previous] = near.words(last.address, [layout.status & !7, layout.previous])?;
        let status = status_in(layout, status);
        if status & layout.kind_mask != layout.kind_lua {
            return None;
        }
        if status & layout.fresh_mask == layout.fresh {
            return Some(last.before + 1);
        }
        if previous == 0 || !previous.is_multiple_of(8) || last.before == DEEPEST {
            return None;
        }
        last = FunctionAt { before: last.before + 1, address: previous };
        if last.before % STEP == 0 {
            *marks = [marks[1], last];
        }
    }
}

/// The CallInfo of the function with `before` functions before it, found from a place nearer to the leaf.
fn outer(guest: &Guest<'_>, facts: &Facts, from: FunctionAt, before: u32) -> Option<u64> {
    // SAFETY: nothing below uses the guest until the reader is dropped.
    let mut near = unsafe { guest.near() }?;
    let mut address = from.address;
    for _ in from.before..before {
        [address] = near.words(address, [facts.info.previous])?;
    }
    Some(address)
}
