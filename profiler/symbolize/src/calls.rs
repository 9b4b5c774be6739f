//! Tail calls: direct calls of functions that go on by a jump into another one, which leaves no frame. What is needed
//! to recognise one in a stack is read from the code: which function a call leads to, and where that function jumps.
//! Nothing is guessed: jumps through registers are not followed. x86-64 only; any bytes may be passed.

use super::{demangle, functions, table};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Architecture, Object, ObjectSection, ReadRef, SectionFlags};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use uunwind_core::frame::{frames, Frame};
use uunwind_elf::blocks::Blocks;
use uunwind_recording::objects::{lookup_address, ObjectMap};
use uunwind_recording::{Call, Recording, Symbol, Symbols};

/// Limit of tail calls in a row that are followed.
const DEPTH: usize = 4;
/// Limit of functions that one call can lead to.
const REACHED: usize = 16;
/// Limit of the code that is decoded of one file, in bytes.
const CODE_LIMIT: u64 = 64 << 20;
/// `call rel32`: the opcode, and the length of the instruction.
const CALL: u8 = 0xe8;
const CALL_BYTES: u64 = 5;

/// Where a function jumps, besides into itself.
#[derive(Default)]
struct Jumps {
    /// Addresses in the same file: the first [`REACHED`].
    to: Vec<u64>,
    /// It jumps through the procedure linkage table, or through a word of the file: to another object, in general.
    leaves: bool,
}

/// The code of a file, of which no more is read than functions that are asked for.
struct Code<'d> {
    file: &'d Blocks,
    sections: Vec<Section>,
}

/// A section of code.
struct Section {
    /// It is a procedure linkage table.
    plt: bool,
    /// File address.
    address: u64,
    /// Its place in the file: offset and bytes.
    place: (u64, u64),
}

/// The direct calls that end at return addresses one byte after these `addresses` (file addresses), and lead to
/// functions that may jump to others.
pub fn find(path: &Path, object: u32, addresses: &[u64]) -> Option<Vec<Call>> {
    let cache = Blocks::new(uunwind_elf::files::open(path).ok()?);
    let elf = object::File::parse(&cache).ok().filter(|elf| elf.architecture() == Architecture::X86_64)?;
    let executable = |flags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0);
    let sections = elf.sections().filter(|section| executable(section.flags())).filter_map(|s| {
        let name = s.name().ok()?;
        let plt = name.starts_with(".plt") || name.starts_with(".iplt");
        Some(Section { plt, address: s.address(), place: s.file_range()? })
    });
    let code = Code { file: &cache, sections: sections.collect() };
    let calls: Vec<(u64, u64)> = addresses.iter().filter_map(|at| Some((*at, target(&code, *at)?))).collect();
    let jumps = follow(path, &code, calls.iter().map(|(_, target)| *target).collect())?;
    let targets: Vec<u64> = calls.iter().map(|(_, target)| *target).collect();
    let names = table::names(path, &targets).ok()?;
    let call = |((address, target), name): (&(u64, u64), table::Named)| {
        let (reached, leaves) = reached(&jumps, *target);
        let (start, name) = name.filter(|(start, _)| start == target && (leaves || !reached.is_empty()))?;
        Some(Call { object, address: *address, start, name: demangle(&name), reached, leaves })
    };
    Some(calls.iter().zip(names).filter_map(call).collect())
}

/// The bytes of a range of code, and whether it lies in a procedure linkage table.
fn bytes<'d>(code: &Code<'d>, range: &Range<u64>) -> Option<(bool, &'d [u8])> {
    let len = range.end.checked_sub(range.start)?;
    code.sections.iter().find_map(|Section { plt, address, place: (offset, size) }| {
        let from = range.start.checked_sub(*address)?;
        let is_inside = from.checked_add(len)? <= *size;
        let bytes = is_inside.then(|| code.file.read_bytes_at(offset.checked_add(from)?, len).ok()).flatten()?;
        Some((*plt, bytes))
    })
}

/// Where the direct call leads whose last byte lies at `last`; `None` if there may be another call, and for a stub of
/// the linkage table, which may lead anywhere.
fn target(code: &Code<'_>, last: u64) -> Option<u64> {
    let next = last.checked_add(1)?;
    let call = next.checked_sub(CALL_BYTES)?;
    let (_, [CALL, distance @ ..]) = bytes(code, &(call..next))? else { return None };
    // call *disp32(%rax,%rbp,8) has the same byte before its displacement.
    if matches!(bytes(code, &(call.checked_sub(2)?..call)), Some((_, [0xff, 0x94]))) {
        return None;
    }
    let target = next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance.try_into().ok()?)));
    bytes(code, &(target..target.checked_add(1)?)).filter(|(plt, _)| !plt).map(|_| target)
}

/// Where the functions at these addresses jump, and those that they jump to.
fn follow(path: &Path, code: &Code<'_>, mut from: HashSet<u64>) -> Option<HashMap<u64, Jumps>> {
    let (mut all, mut left) = (HashMap::new(), CODE_LIMIT);
    for _ in 0..DEPTH {
        let addresses: Vec<u64> = from.drain().collect();
        if addresses.is_empty() {
            break;
        }
        for (address, range) in addresses.iter().zip(functions::covering(path, &addresses)?) {
            let range = range.filter(|range| range.start == *address);
            let decoded = range.and_then(|range| {
                left = left.checked_sub(range.end - range.start)?;
                Some(jumps(code, &range))
            });
            all.insert(*address, decoded.unwrap_or_default());
        }
        let next = addresses.iter().filter_map(|address| all.get(address)).flat_map(|jumps: &Jumps| &jumps.to);
        from = next.filter(|to| !all.contains_key(*to)).copied().collect();
    }
    Some(all)
}

/// The jumps of one function.
fn jumps(code: &Code<'_>, range: &Range<u64>) -> Jumps {
    let mut found = Jumps::default();
    let Some((_, text)) = bytes(code, range) else { return found };
    for instruction in &mut Decoder::with_ip(64, text, range.start, DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let to = instruction.near_branch_target();
                match bytes(code, &(to..to.saturating_add(1))) {
                    Some((true, _)) => found.leaves = true,
                    Some((false, _)) if !range.contains(&to) && found.to.len() < REACHED => found.to.push(to),
                    _ => {}
                }
            }
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => found.leaves = true,
            _ => {}
        }
    }
    found
}

/// All functions that a call of `target` can jump to, and whether it can leave the object.
fn reached(all: &HashMap<u64, Jumps>, target: u64) -> (Vec<u64>, bool) {
    let (mut reached, mut leaves, mut next) = (Vec::new(), false, 0);
    let mut at = Some(target);
    while let Some(jumps) = at.and_then(|at| all.get(&at)) {
        leaves |= jumps.leaves;
        let new = jumps.to.iter().filter(|to| **to != target && !reached.contains(*to));
        let mut new: Vec<u64> = new.copied().take(REACHED - reached.len()).collect();
        new.sort_unstable();
        new.dedup();
        reached.extend(new);
        at = reached.get(next).copied();
        next += 1;
    }
    (reached, leaves)
}

/// Whether the callee's frame was entered by a jump from the function that `call` called. `callee`: its object
/// (canonical index) and its symbol.
pub fn jumped(call: &Call, callee: (u32, Option<&Symbol>)) -> bool {
    let (object, Some(symbol)) = callee else { return false };
    if object != call.object {
        return call.leaves;
    }
    // A function may lie in two parts (`name.cold`), between which it jumps.
    let part = symbol.name.strip_prefix(&*call.name).is_some_and(|rest| rest.starts_with(['.', ' ']));
    symbol.start != call.start && !part && call.reached.contains(&symbol.start)
}

/// Keeps those calls from which a frame of the recording was entered by a jump: a call of each kind of stack is found
/// here, but tail calls are few.
pub fn keep_those_in_stacks(recording: &Recording, map: &mut ObjectMap, symbols: &mut Symbols) {
    let calls: HashMap<(u32, u64), usize> =
        symbols.calls.iter().enumerate().map(|(index, call)| ((call.object, call.address), index)).collect();
    if calls.is_empty() {
        return;
    }
    let names: HashMap<(u32, u64), &Symbol> = symbols.entries.iter().map(|s| ((s.object, s.address), s)).collect();
    let (mut wanted, mut visited) = (HashSet::new(), HashSet::new());
    for sample in recording.all_samples() {
        let Some(thread) = recording.threads.get(sample.thread as usize) else { continue };
        let mut node = sample.stack;
        while visited.insert((thread.process, node)) {
            let Some(entry) = (node as usize).checked_sub(1).and_then(|index| recording.nodes.get(index)) else {
                break;
            };
            let caller = places(recording, map, thread.process, entry.parent).filter(|(exact, _)| !exact);
            for call in caller.iter().flat_map(|(_, places)| places).filter_map(|place| calls.get(place)) {
                let Some((_, callees)) = places(recording, map, thread.process, node) else { break };
                let entered = |callee: &(u32, u64)| {
                    let call = symbols.calls.get(*call);
                    call.is_some_and(|call| jumped(call, (callee.0, names.get(callee).copied())))
                };
                if callees.iter().any(entered) {
                    wanted.insert(*call);
                }
            }
            node = entry.parent;
        }
    }
    let mut index = 0;
    symbols.calls.retain(|_| {
        index += 1;
        wanted.contains(&(index - 1))
    });
}

/// Of a native frame: whether its address is exact, and where it may lie, by canonical object and file address.
fn places(recording: &Recording, map: &mut ObjectMap, process: u32, node: u32) -> Option<(bool, Vec<(u32, u64)>)> {
    let entry = recording.nodes.get((node as usize).checked_sub(1)?)?;
    let Frame::Native { address, exact, .. } = frames(&[entry.word, entry.position]).next()? else { return None };
    let lookup = lookup_address(address, exact);
    Some((exact, map.places(recording, process, lookup)))
}
