//! The gate through which calls of a running process are led while it is recorded, as the process shows it.

use crate::looks::Looks;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use uunwind_ring::gate::{Called, CALLED};

/// The words of the objects that tests have made: those that loaders and programs write, and those that are read-only
/// since.
pub fn words(pid: u32) -> HashMap<u64, u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let mut words = HashMap::new();
    let is_code = |line: &str| line.split(' ').nth(1).is_some_and(|permissions| permissions.contains('x'));
    for line in maps.lines().filter(|line| line.contains("/uu-tests/") && !is_code(line)) {
        let (start, rest) = line.split_once('-').expect("a range");
        let end = rest.split_once(' ').expect("its end").0;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        let mut bytes = vec![0; (end - start) as usize];
        if memory.read_exact_at(&mut bytes, start).is_ok() {
            let word = |(index, bytes): (usize, &[u8])| {
                (start + 8 * index as u64, u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
            };
            words.extend(bytes.chunks_exact(8).enumerate().map(word));
        }
    }
    words
}

/// The addresses of the gate's code, if the process has one.
fn gate(pid: u32) -> Option<std::ops::Range<u64>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let line = maps.lines().find(|line| line.contains("/memfd:uu-gate") && line.contains("r-xp"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

/// Whether entries lead to a gate.
pub fn is_in_use(pid: u32) -> bool {
    gate(pid).is_some() && !redirected(pid).is_empty()
}

/// The entries that lead to the gate.
pub fn redirected(pid: u32) -> Vec<u64> {
    let gate = gate(pid).expect("a gate");
    words(pid).into_iter().filter(|(_, value)| gate.contains(value)).map(|(place, _)| place).collect()
}

/// Has the gate say that this number of entries was left as it was, as after an earlier recording.
pub fn say_left(pid: u32, number: u64) {
    let place = gate(pid).expect("a gate").start + (CALLED + std::mem::offset_of!(Called, left)) as u64;
    let memory = std::fs::File::options().write(true).open(format!("/proc/{pid}/mem")).expect("its memory");
    memory.write_all_at(&number.to_le_bytes(), place).expect("its gate");
}

/// As it looks, without the gate, which stays.
pub fn looks(pid: u32) -> Looks {
    let mut looks = Looks::of(pid);
    looks.mappings.retain(|line| !line.contains("/memfd:uu-gate"));
    looks
}
