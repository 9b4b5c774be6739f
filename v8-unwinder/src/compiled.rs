//! Compiled code that is being entered or left. Functions of baseline and optimised code begin and end with few forms
//! of machine code (<https://github.com/v8/v8/blob/11.3.244/src/compiler/backend/x64/code-generator-x64.cc>,
//! `AssembleConstructFrame` and `AssembleReturn`; `src/baseline/x64/baseline-compiler-x64-inl.h`); everywhere in
//! between the frame pointer is set up. A function is entered with its object in rdi, which leads to its first
//! instruction.

use crate::facts::State;
use crate::function;
use crate::heap::{Heap, Object};

/// DWARF number of rdi.
const RDI: u8 = 5;
/// Bytes of a function's beginning that are looked at, and bytes before an instruction in which its end is sought.
const BEGINNING: usize = 64;
const BEFORE: usize = 32;
/// `push %rbp; mov %rsp,%rbp`, in both encodings.
const SET_UP: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
/// `mov %rbp,%rsp; pop %rbp`, in both encodings.
const TAKE_DOWN: [[u8; 4]; 2] = [[0x48, 0x8b, 0xe5, 0x5d], [0x48, 0x89, 0xec, 0x5d]];
/// Alignment of code.
const ALIGNMENT: u64 = 32;

/// Whether an address is in this code, or at its end.
pub fn covers(heap: &Heap<'_, '_>, code: Object, address: u64) -> bool {
    let size = heap.half(code, heap.facts.code_size).map(u64::from);
    let start = heap.field(code, heap.facts.code_start);
    start.zip(size).is_some_and(|(start, size)| address.wrapping_sub(start) < size)
}

/// The code around an address, where it is not the function's current code: code has its object's address before its
/// first instruction.
#[inline(never)]
pub fn search(heap: &Heap<'_, '_>, address: u64) -> Option<Object> {
    /// Limit of the distance to its start.
    const FURTHEST: u64 = 64 << 10;
    let mut start = address & !(ALIGNMENT - 1);
    for _ in 0..FURTHEST / ALIGNMENT {
        // All code of a region lies together: where it ends, the search does, too.
        let words = words_before(heap, start)?;
        if let Some(found) = object_in(heap, words, start) {
            return covers(heap, found, address).then_some(found);
        }
        start = start.checked_sub(ALIGNMENT)?;
    }
    None
}

/// The function that is being entered, by the register in which it is passed.
pub fn entered(heap: &Heap<'_, '_>) -> Option<(u64, Object)> {
    let tagged = heap.guest.register(RDI)?;
    let object = heap.object(tagged)?;
    let [first, last] = heap.facts.functions;
    (first <= object.kind && object.kind <= last).then_some((tagged, object))
}

/// The state at an interrupted instruction of compiled code, and whether the function is being entered.
#[inline(never)]
pub fn state(heap: &Heap<'_, '_>, pc: u64) -> (State, bool) {
    match leaving(heap, pc) {
        State::Framed => {}
        state => return (state, false),
    }
    match entering(heap, pc) {
        Some(state) => (state, state != State::Framed),
        None if is_first(heap, pc) => (State::Above(0), false),
        None => (setting_up(heap, pc), false),
    }
}

/// Whether an instruction is the first one of some code.
fn is_first(heap: &Heap<'_, '_>, pc: u64) -> bool {
    pc.is_multiple_of(ALIGNMENT) && object_before(heap, pc).is_some()
}

/// The object of the code that begins at an address.
fn object_before(heap: &Heap<'_, '_>, start: u64) -> Option<Object> {
    object_in(heap, words_before(heap, start)?, start)
}

/// Two words before code that begins at an address: there would be the map of what holds the code, and its object.
fn words_before(heap: &Heap<'_, '_>, start: u64) -> Option<[u64; 2]> {
    let mut words = [0; 2];
    let at = start.wrapping_sub(heap.facts.code_object.into()).wrapping_sub(8);
    heap.guest.run(at, &mut words).then_some(words)
}

/// The object with the address in such words, if it is that of this code.
fn object_in(heap: &Heap<'_, '_>, words: [u64; 2], start: u64) -> Option<Object> {
    // Tagged, aligned, and not in the first 4 GiB, where V8 asks for no memory: other words are instructions, and to
    // read where they lead costs a fault.
    let is_object = |word: &u64| word & 7 == 1 && word >> 32 != 0 && word >> 47 == 0;
    let [_, code] = Some(words).filter(|words| words.iter().all(is_object))?;
    let found = heap.of_kind(code, heap.facts.type_code)?;
    (heap.field(found, heap.facts.code_start) == Some(start)).then_some(found)
}

/// The state at the two instructions that set a frame up: other code than functions begins with them, too.
fn setting_up(heap: &Heap<'_, '_>, pc: u64) -> State {
    let mut bytes = [0; 5];
    if !heap.guest.bytes(pc.wrapping_sub(1), &mut bytes) {
        return State::Framed;
    }
    let is_at = |at: usize| bytes.get(at..).is_some_and(|rest| SET_UP.iter().any(|form| rest.starts_with(form)));
    match (is_at(1), is_at(0)) {
        (true, _) => State::Above(0),
        (_, true) => State::Above(1),
        _ => State::Framed,
    }
}

/// The state, if the instruction is one of the first of the function in rdi.
fn entering(heap: &Heap<'_, '_>, pc: u64) -> Option<State> {
    let (_, function) = entered(heap)?;
    let code = function::code(heap, function)?;
    let start = heap.field(code, heap.facts.code_start)?;
    let distance = usize::try_from(pc.wrapping_sub(start)).ok().filter(|distance| *distance < BEGINNING)?;
    let mut bytes = [0; BEGINNING];
    heap.guest.bytes(start, &mut bytes).then(|| at_beginning(&bytes, distance))?
}

fn at_beginning(bytes: &[u8], distance: usize) -> Option<State> {
    const CALL: u8 = 0xe8;
    let mut at = 0usize;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if SET_UP.iter().any(|form| rest.starts_with(form)) {
            return Some(match distance.checked_sub(at) {
                None | Some(0) => State::Above(0),
                Some(1) => State::Above(1),
                Some(_) => State::Framed,
            });
        }
        if rest.first() == Some(&CALL) {
            // A builtin makes the frame of baseline code.
            return Some(if distance <= at { State::Above(0) } else { State::Framed });
        }
        at = at.checked_add(length(rest)?)?;
    }
    None
}

/// The length of an instruction that is known to stand before a frame is set up.
fn length(bytes: &[u8]) -> Option<usize> {
    Some(match *bytes {
        // mov -8(%rcx),%rbx; testb $1,n(%rbx)
        [0x48, 0x8b, 0x59, ..] | [0xf6, 0x43, ..] => 4,
        [0x0f, 0x80..=0x8f, ..] => 6,
        // xor
        [0x33 | 0x31, ..] => 2,
        // mov $n
        [0xb8..=0xbf, ..] => 5,
        [0x41, 0xb8..=0xbf, ..] => 6,
        [0x48 | 0x49, 0xb8..=0xbf, ..] => 10,
        [0x90, ..] => 1,
        _ => return None,
    })
}

/// The state, if the function is being left; otherwise framed.
fn leaving(heap: &Heap<'_, '_>, pc: u64) -> State {
    let mut bytes = [0; BEFORE + 1];
    if !heap.guest.bytes(pc.wrapping_sub(BEFORE as u64), &mut bytes) {
        return State::Framed;
    }
    let (before, here) = bytes.split_at(BEFORE);
    for at in (0..BEFORE).rev() {
        let Some(rest) = before.get(at..) else { continue };
        let form = TAKE_DOWN.iter().find(|form| rest.starts_with(*form));
        if let Some(state) = form.and_then(|form| at_end(rest.get(form.len()..)?)) {
            return state;
        }
    }
    // A return instruction takes its address from the stack.
    if matches!(here, [0xc2 | 0xc3]) {
        State::Above(0)
    } else {
        State::Framed
    }
}

/// The state after the instructions that follow the one by which rbp became the caller's. `None`: they are others than
/// those of a function's end.
fn at_end(mut bytes: &[u8]) -> Option<State> {
    let mut state = State::Above(0);
    while !bytes.is_empty() {
        let (length, next) = match (state, bytes) {
            // cmp $n,%rcx; jg; ret $n. Maglev uses other registers.
            (State::Above(0), [0x48 | 0x49, 0x83, 0xf8..=0xff, ..]) => (4, state),
            (State::Above(0), [0x48 | 0x49, 0x81, 0xf8..=0xff, ..]) => (7, state),
            (State::Above(0), [0x70..=0x7f, ..]) => (2, state),
            (State::Above(0), [0x0f, 0x80..=0x8f, ..]) => (6, state),
            (State::Above(0), [0xc2, ..]) => (3, state),
            // pop %r10; lea (%rsp,%rcx,8),%rsp; push %r10; ret
            (State::Above(0), [0x41, pop @ 0x58..=0x5f, ..]) => (2, State::Register(pop - 0x50)),
            (State::Above(0), [0x59, ..]) => (1, State::Register(2)),
            (State::Register(_), [0x48..=0x4f, 0x8d, 0x24, ..]) => (4, state),
            (State::Register(number), [0x41, push @ 0x50..=0x57, ..]) if *push - 0x48 == number => (2, State::Above(0)),
            (State::Register(2), [0x51, ..]) => (1, State::Above(0)),
            _ => return None,
        };
        bytes = bytes.get(length..)?;
        state = next;
    }
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a function of Node 20.20.2, as objdump shows it.
    #[test]
    fn a_function_that_is_left_has_no_frame() {
        // cmp $2,%rcx; jg; ret $16; pop %r10; lea (%rsp,%rcx,8),%rsp; push %r10; ret
        let end: &[u8] = &[
            0x48, 0x83, 0xf9, 0x02, 0x7f, 0x03, 0xc2, 0x10, 0x00, 0x41, 0x5a, 0x4a, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3,
        ];
        let expected = [
            (0, State::Above(0)),
            (4, State::Above(0)),
            (6, State::Above(0)),
            (9, State::Above(0)),
            (11, State::Register(10)),
            (15, State::Register(10)),
            (17, State::Above(0)),
        ];
        for (at, state) in expected {
            assert_eq!(at_end(&end[..at]), Some(state), "{at}");
        }
        assert_eq!(at_end(&end[..5]), None, "in the middle of an instruction");
        // Maglev's in Node 24.22.3: cmp $1,%r8; jg; ret $8; pop %r9; lea (%rsp,%r8,8),%rsp; push %r9; ret
        let maglev: &[u8] = &[
            0x49, 0x83, 0xf8, 0x01, 0x0f, 0x8f, 3, 0, 0, 0, 0xc2, 8, 0, 0x41, 0x59, 0x4a, 0x8d, 0x24, 0xc4, 0x41, 0x51,
            0xc3,
        ];
        for (at, state) in [
            (4, State::Above(0)),
            (10, State::Above(0)),
            (13, State::Above(0)),
            (15, State::Register(9)),
            (19, State::Register(9)),
            (21, State::Above(0)),
        ] {
            assert_eq!(at_end(&maglev[..at]), Some(state), "{at}");
        }
        assert_eq!(at_end(end), None, "beyond the return");
    }

    #[test]
    fn a_function_that_is_entered_has_no_frame_yet() {
        // mov -8(%rcx),%rbx; testb $1,53(%rbx); jne; push %rbp; mov %rsp,%rbp; push %rsi
        let optimised =
            [0x48, 0x8b, 0x59, 0xf8, 0xf6, 0x43, 0x35, 1, 0x0f, 0x85, 0, 0, 0, 0, 0x55, 0x48, 0x89, 0xe5, 0x56];
        for (at, state) in [
            (0, State::Above(0)),
            (8, State::Above(0)),
            (14, State::Above(0)),
            (15, State::Above(1)),
            (18, State::Framed),
        ] {
            assert_eq!(at_beginning(&optimised, at), Some(state), "{at}");
        }
        // xor %ebx,%ebx; movabs $n,%r12; call
        let baseline = [0x33, 0xdb, 0x49, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8, 0xe8, 0, 0, 0, 0, 0x48];
        for (at, state) in [(0, State::Above(0)), (12, State::Above(0)), (17, State::Framed)] {
            assert_eq!(at_beginning(&baseline, at), Some(state), "{at}");
        }
        assert_eq!(at_beginning(&[0xcc; 8], 2), None, "other code");
    }
}
