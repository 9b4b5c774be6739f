//! Reads of what is no memory, in walks: each costs a signal.

use crate::samples::Sample;

/// Faults of a walk that knows nothing of the code that it meets, because the facts of its runtime are still to come:
/// it looks at many words. Others know where to look.
const UNKNOWING: usize = 100;

/// Few of the walks of these samples have read what is no memory.
#[track_caller]
pub fn few_faults(faults: usize, samples: &[Sample]) {
    let unknowing = samples.iter().filter(|sample| sample.flags.contains("facts-pending")).count();
    let most = samples.len() + UNKNOWING * unknowing;
    assert!(faults <= most, "{faults} faults in {} walks, {unknowing} of which knew nothing", samples.len());
}
