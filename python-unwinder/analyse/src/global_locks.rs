//! The number of global interpreter locks (GILs) of a process. Up to 3.11 there is one; later each interpreter may have
//! its own ([PEP 684](https://peps.python.org/pep-0684/)), and at most one for each interpreter.

use uunwind_language::Memory;
use uunwind_python::facts::Facts;
use uunwind_python::lock::{LOCK_ABSENT, LOCK_OPTIONAL, LOCK_RUNTIME, LOCK_THREAD};

/// Most interpreters that are counted.
const INTERPRETERS: usize = 64;

/// At most this number of locks; `None`: that cannot be read, or there may be more.
pub fn of_process(facts: &Facts, bias: u64, memory: &dyn Memory) -> Option<usize> {
    match facts.lock.kind {
        LOCK_ABSENT => return Some(0),
        LOCK_RUNTIME => return Some(1),
        LOCK_THREAD | LOCK_OPTIONAL => {}
        _ => return None,
    }
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let runtime = facts.runtime.wrapping_add(bias);
    let mut next = word(runtime.wrapping_add(u64::from(facts.runtime_interpreters)))?;
    for count in 0..INTERPRETERS {
        if next == 0 {
            return Some(count);
        }
        next = word(next.wrapping_add(u64::from(facts.interpreter_next)))?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions;
    use std::collections::HashMap;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let Some(word) = self.0.get(&address) else { return false };
            into.copy_from_slice(&word.to_le_bytes());
            true
        }
    }

    #[test]
    fn each_interpreter_may_have_a_lock_since_there_is_one_for_each() {
        let layouts = versions::ALL.iter().map(|minor| minor.layout);
        let kinds = [LOCK_RUNTIME, LOCK_THREAD, LOCK_ABSENT, LOCK_OPTIONAL];
        for (mut facts, kind) in layouts.flat_map(|layout| kinds.map(|kind| (layout, kind))) {
            facts.lock.kind = kind;
            let head = facts.runtime + 0x1000 + u64::from(facts.runtime_interpreters);
            let next = |at: u64| at + u64::from(facts.interpreter_next);
            let (first, second) = (0x50_0000, 0x60_0000);
            let one = Words(HashMap::from([(head, first), (next(first), 0)]));
            let two = Words(HashMap::from([(head, second), (next(second), first), (next(first), 0)]));
            let endless = Words(HashMap::from([(head, first), (next(first), first)]));
            let counts = [one, two, endless, Words(HashMap::new())].map(|words| of_process(&facts, 0x1000, &words));
            let expected = match kind {
                LOCK_RUNTIME => [Some(1); 4],
                LOCK_ABSENT => [Some(0); 4],
                _ => [Some(1), Some(2), None, None],
            };
            assert_eq!(counts, expected);
        }
    }
}
