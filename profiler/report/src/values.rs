//! The values that profiles for other programs have of each stack: of time its samples and their time, of waits their
//! number and length, of allocations how many there were, and are, and their bytes.

use crate::stacks::Profile;
use std::collections::HashMap;
use uunwind_recording::{Amount, Held, Recording};

/// A value: how it is called, and in what it is measured.
pub(crate) type Kind = (&'static str, &'static str);

/// Of a sample of allocations, the first four as those of Go's heap profiles are called.
const MEMORY: [Kind; 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("temporary_objects", "count"),
    ("temporary_space", "bytes"),
];

/// Of a wait, as those of Go's mutex profiles are called.
const LOCKS: [Kind; 2] = [("contentions", "count"), ("delay", "nanoseconds")];

/// Some of the values of allocations, for stores that hold a whole profile for a sum over time, or for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All values.
    #[default]
    Whole,
    /// What was allocated.
    Allocated,
    /// What is in use at one moment.
    InUse,
}

impl Part {
    /// Those of these values that belong to it.
    pub(crate) fn of<T>(self, values: &[T]) -> &[T] {
        let places = match self {
            Part::Whole => 0..values.len(),
            Part::Allocated => 0..2,
            Part::InUse => 2..COMMON,
        };
        values.get(places).unwrap_or_default()
    }
}

/// The values that each stack of this recording has.
pub(crate) fn kinds(recording: &Recording) -> Vec<Kind> {
    if recording.is_alloc() {
        return MEMORY.to_vec();
    }
    if recording.is_lock() {
        return LOCKS.to_vec();
    }
    let value = recording.value();
    vec![("samples", "count"), (value.name, value.unit.name())]
}

/// The number of values of allocations that other profilers have, too: the first ones.
pub(crate) const COMMON: usize = 4;

/// The values of each stack, in the order of [`kinds`].
pub(crate) fn of(recording: &Recording, profile: &Profile) -> Vec<Box<[u64]>> {
    if let Some(values) = &profile.values {
        return values.clone();
    }
    if recording.is_alloc() {
        return memory(recording, profile);
    }
    let contentions = recording.is_lock().then(|| contentions(recording, profile));
    let least = recording.value().unit.least(recording.settings.rate);
    let stacks = profile.stacks.iter().enumerate();
    let values = stacks.map(|(index, stack)| {
        let count = contentions.as_ref().and_then(|all| all.get(index)).copied();
        Box::from([count.unwrap_or(stack.samples), stack.weight.saturating_mul(least)])
    });
    values.collect()
}

/// The number of waits of each stack, as estimated from the samples.
fn contentions(recording: &Recording, profile: &Profile) -> Vec<u64> {
    let mut sums = vec![0.0; profile.stacks.len()];
    let of_sample: HashMap<usize, f64> =
        recording.lock_waits.iter().map(|wait| (wait.sample, recording.waited(wait).count)).collect();
    for entry in &profile.entries {
        let count = of_sample.get(&(entry.sample as usize));
        if let (Some(sum), Some(count)) = (sums.get_mut(entry.stack as usize), count) {
            *sum += count;
        }
    }
    sums.into_iter().map(|sum: f64| sum.round() as u64).collect()
}

fn memory(recording: &Recording, profile: &Profile) -> Vec<Box<[u64]>> {
    let in_use = match (profile.since, profile.held) {
        (Some(_), _) => Held::Now,
        (None, Some(held @ Held::Grown(..))) => held,
        (None, _) => Held::End,
    };
    let mut kinds = [Held::Total, in_use, Held::Temporary].map(|held| recording.held(held));
    let [total, _, temporary] = &mut kinds;
    // An earlier profile has them.
    for earlier in [total, temporary] {
        earlier.iter_mut().take(profile.since.unwrap_or(0)).for_each(|amount| *amount = Amount::default());
    }
    let mut sums = vec![[0.0; MEMORY.len()]; profile.stacks.len()];
    for entry in &profile.entries {
        let of = |held: &Vec<Amount>| held.get(entry.sample as usize).copied().unwrap_or_default();
        let Some(sums) = sums.get_mut(entry.stack as usize) else { continue };
        let values = kinds.iter().map(of).flat_map(|amount| [amount.count, amount.bytes]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums.into_iter().map(|sums| Box::from(sums.map(|sum| sum.round() as u64))).collect()
}
