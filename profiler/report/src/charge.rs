//! Native code charged to the function of a language that called it: its time is this function's own, and its frames
//! are left out. What a script spends in the allocator, in comparisons or in a library then stands where its
//! author looks for it.

use crate::stacks::{Entry, Kind, Line, Profile, Stack};
use std::borrow::Cow;
use std::collections::HashMap;

/// What native code is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Native {
    /// All of it.
    All,
    /// The interpreter's own, with the C library that it calls: what a script calls in other libraries stays.
    Internals,
}

/// The frames of a stack, leaf first, without the native ones that the innermost function of a language has called.
/// Remarks, and what a thread waits in, stay. A stack without such a function is left as it is.
pub fn charged<'s>(lines: &'s [Line], stack: &'s [u32]) -> impl Iterator<Item = u32> + 's {
    let kind = |index: &u32| lines.get(*index as usize).map(|line| line.kind);
    let is_of_language = |index: &u32| matches!(kind(index), Some(Kind::Semantic | Kind::Jit));
    let first = stack.iter().position(is_of_language).unwrap_or(0);
    let is_native = move |index: &u32| matches!(kind(index), Some(Kind::Native | Kind::Inlined | Kind::Kernel));
    let shown = move |(depth, index): &(usize, &u32)| *depth >= first || !is_native(index);
    stack.iter().enumerate().filter(shown).map(|(_, index)| *index)
}

/// The frames of a stack, leaf first, without the interpreter's internals that the innermost function of a language has
/// called. A stack in which it has called other native code, such as an extension's, is left as it is.
pub fn without_internals<'s>(profile: &Profile, stack: &'s [u32]) -> Cow<'s, [u32]> {
    if profile.internals.is_empty() {
        return Cow::Borrowed(stack);
    }
    let lines = || stack.iter().map(|line| profile.lines.get(*line as usize));
    let is_of_language = |line: Option<&Line>| line.is_some_and(|line| matches!(line.kind, Kind::Semantic | Kind::Jit));
    let is_other = |line: &Line| {
        let is_internal = line.object.is_some_and(|object| profile.internals.contains(&object));
        matches!(line.kind, Kind::Native | Kind::Inlined) && !is_internal
    };
    let Some(first) = lines().position(is_of_language) else { return Cow::Borrowed(stack) };
    if first == 0 || lines().take(first).flatten().any(is_other) {
        return Cow::Borrowed(stack);
    }
    Cow::Owned(charged(&profile.lines, stack).collect())
}

/// The profile with all stacks charged; those that have become equal are one.
pub fn charge(profile: Profile, native: Native) -> Profile {
    let mut known: HashMap<(u32, u32, Box<[u32]>), u32> = HashMap::new();
    let mut stacks: Vec<Stack> = Vec::new();
    let mut places = Vec::with_capacity(profile.stacks.len());
    for stack in &profile.stacks {
        let lines: Box<[u32]> = match native {
            Native::All => charged(&profile.lines, &stack.lines).collect(),
            Native::Internals => without_internals(&profile, &stack.lines).into(),
        };
        let next = stacks.len() as u32;
        let place = *known.entry((stack.thread, stack.labels, lines.clone())).or_insert(next);
        match stacks.get_mut(place as usize) {
            Some(same) => {
                same.samples += stack.samples;
                same.weight += stack.weight;
            }
            None => stacks.push(Stack { lines, ..stack.clone() }),
        }
        places.push(place);
    }
    let entry = |entry: &Entry| Some(Entry { stack: *places.get(entry.stack as usize)?, ..*entry });
    let entries = profile.entries.iter().filter_map(entry).collect();
    Profile { stacks, entries, ..profile }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames by number: native, a script's, another one of it, a JIT's, a remark, the kernel's, a system call.
    fn profile(stacks: &[&[u32]]) -> Profile {
        let kinds =
            [Kind::Native, Kind::Semantic, Kind::Semantic, Kind::Jit, Kind::Marker, Kind::Kernel, Kind::Waiting];
        let lines = kinds.iter().enumerate().map(|(n, kind)| Line { kind: *kind, ..Line::marker(n.to_string()) });
        let stack = |lines: &&[u32]| Stack { thread: 0, lines: Box::from(*lines), labels: 0, samples: 1, weight: 2 };
        let stacks: Vec<Stack> = stacks.iter().map(stack).collect();
        let entry = |stack| Entry { time: u64::from(stack), stack, weight: 2, sample: stack };
        let entries = (0..stacks.len() as u32).map(entry).collect();
        Profile { lines: lines.collect(), stacks, entries, ..Profile::default() }
    }

    fn left(stack: &[u32]) -> Vec<u32> {
        charged(&profile(&[]).lines, stack).collect()
    }

    #[test]
    fn native_code_below_the_innermost_function_of_a_language_is_left_out() {
        assert_eq!(left(&[5, 0, 0, 1, 0, 2, 0]), [1, 0, 2, 0], "what lies between two of them stays");
        assert_eq!(left(&[0, 3, 0, 1]), [3, 0, 1], "functions of JITs are functions of a language");
        assert_eq!(left(&[4, 0, 6, 0, 1, 0]), [4, 6, 1, 0], "remarks and waits stay");
        assert_eq!(left(&[5, 0, 0]), [5, 0, 0], "a stack without a language stays");
        assert_eq!(left(&[]), [] as [u32; 0]);
    }

    #[test]
    fn equal_stacks_are_merged_and_no_time_is_lost() {
        let charged = charge(profile(&[&[0, 1], &[5, 0, 1], &[2, 1], &[1]]), Native::All);
        let stacks: Vec<(&[u32], u64, u64)> =
            charged.stacks.iter().map(|stack| (&stack.lines[..], stack.samples, stack.weight)).collect();
        assert_eq!(stacks, [(&[1][..], 3, 6), (&[2, 1][..], 1, 2)]);
        let entries: Vec<(u64, u32)> = charged.entries.iter().map(|entry| (entry.time, entry.stack)).collect();
        assert_eq!(entries, [(0, 0), (1, 0), (2, 1), (3, 0)]);
    }
}
