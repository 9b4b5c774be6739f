//! Replays every seed of every target, and a bounded number of damaged ones: the same on every run.

use std::collections::BTreeSet;
use std::time::Duration;
use uunwind_fuzz::campaign::Campaign;
use uunwind_fuzz::corpus;
use uunwind_fuzz::runner::{keep, Runner};
use uunwind_fuzz::targets::{self, Target};

/// Time limit of one input. Far above the slowest, since test machines are busy.
const LIMIT: Duration = Duration::from_secs(30);
/// Limit of the corpus's size, in bytes.
const CORPUS_BYTES: usize = 300 << 10;

fn replay(name: &str) {
    let target = targets::find(name).expect("a target");
    let seeds = corpus::seeds(name);
    let mut runner = Runner::new(target, LIMIT);
    let mut run = |what: &str, input: &[u8]| match runner.run(input) {
        Ok(taken) => taken,
        Err(panic) => panic!("{what}: {panic}\n{}", keep(target, input)),
    };
    for (seed, bytes) in &seeds {
        // Seeds with this prefix are inputs that must be refused.
        assert_eq!(run(seed, bytes), !seed.starts_with("refused"), "seed {name}/{seed}: taken by the parser?");
    }
    run("nothing", &[]);
    let mut campaign = Campaign::new(seeds.into_iter().map(|(_, bytes)| bytes).collect(), 1);
    let mut taken = 0;
    for round in 0..target.rounds {
        let input = campaign.next_input();
        let took = run(&format!("round {round}"), &input);
        taken += u32::from(took);
        campaign.record(input, took);
    }
    // Damage that is never accepted, or never refused, tests little.
    let (low, high) = (target.rounds / 100, target.rounds - target.rounds / 100);
    assert!((low..=high).contains(&taken), "{taken} of {} mutants were taken", target.rounds);
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed_and_has_its_folder() {
            let replayed: BTreeSet<_> = [$(stringify!($name)),*].into();
            let targets: BTreeSet<_> = targets::ALL.iter().map(|target: &Target| target.name).collect();
            assert_eq!(replayed, targets);
            let folders = std::fs::read_dir(corpus::home().join("corpus")).expect("the corpus");
            let folders = folders.map(|f| f.expect("a folder").file_name().to_string_lossy().into_owned());
            assert_eq!(folders.collect::<Vec<_>>().iter().map(String::as_str).collect::<BTreeSet<_>>(), targets);
            let bytes: usize = targets.iter().flat_map(|t| corpus::seeds(t)).map(|(_, seed)| seed.len()).sum();
            assert!(bytes <= CORPUS_BYTES, "{bytes} bytes of seeds");
        }
    };
}

uunwind_fuzz::for_each_target!(replays);
