//! Live stacks on AArch64, real or emulated: walks in signal handlers against libgcc's unwinder and the chain that the
//! program itself keeps. `ci/aarch64` compiles the libraries and says in UU_AARCH64_CHAINS where they are.
#![cfg(target_arch = "aarch64")]

mod support;

use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use support::{chains, Chains, Sample, Seen};
use uunwind_aarch64_tests::recording::holds;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::regs::aarch64::pac_mask;
use uunwind_core::stop_reason::StopReason;

/// Walks that an asynchronous test takes: UU_CAPTURES, or some.
fn captures() -> u32 {
    std::env::var("UU_CAPTURES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

#[test]
fn guarded_reads_fail_where_nothing_is_mapped() {
    let _alone = support::begin();
    // SAFETY: `begin` installed the handler of faults.
    let mut reader = unsafe { Reader::new(Mode::Guarded) };
    let bytes = [7u8; 40];
    let at = bytes.as_ptr() as u64;
    assert_eq!(reader.word(at + 3), Some(0x0707_0707_0707_0707));
    let mut out = [0; 24];
    assert!(reader.read(at + 1, &mut out) && out == [7; 24]);
    for address in [0, 8, 0xffff_0000, (1 << 48) - 8, 1 << 48, u64::MAX - 8] {
        assert_eq!(reader.word(address), None, "{address:#x}");
        assert!(!reader.read(address, &mut out), "{address:#x}");
    }
}

/// In the leaf of random chains, where the whole chain is known.
fn in_the_leaf(chains: &Chains) -> Vec<Sample> {
    let mut samples = Vec::new();
    for seed in 0..40u32 {
        let depth = 1 + seed as i32 % 30;
        let sample = support::in_the_leaf(chains, depth, seed.wrapping_mul(0x9e37_79b9)).expect("the leaf was reached");
        assert!(sample.shadow.len() > depth as usize, "{} entries at depth {depth}", sample.shadow.len());
        assert!(holds(&sample.ours, &sample.shadow), "{seed}: {sample:#x?}");
        samples.push(sample);
    }
    samples
}

#[test]
fn a_leaf_knows_its_chain() {
    let _alone = support::begin();
    for name in ["plain", "signed"] {
        let Some(chains) = chains(name) else { continue };
        for sample in in_the_leaf(&chains) {
            assert_eq!((&sample.ours, sample.stop), (&sample.oracle, StopReason::Complete), "{name}");
        }
    }
}

#[test]
fn signed_return_addresses_are_signed() {
    let _alone = support::begin();
    let Some(chains) = chains("signed") else { return };
    let sample = support::in_the_leaf(&chains, 8, 1).expect("the leaf was reached");
    if pac_mask() == 0 {
        eprintln!("skipped: this CPU signs no addresses");
        return;
    }
    // The words that the walk read differ from the addresses that it reports in the pointer authentication code.
    let words = sample.recording.memory.iter().flat_map(|(_, bytes)| bytes.chunks_exact(8));
    let words = words.map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    let signed = words.filter(|word| word & pac_mask() != 0 && sample.ours.contains(&(word & !pac_mask()))).count();
    assert!(signed >= 8, "{signed} signed return addresses of {}", sample.ours.len());
}

#[test]
fn frame_pointers_lead_through_code_without_tables() {
    let _alone = support::begin();
    let Some(chains) = chains("pointers") else { return };
    for sample in in_the_leaf(&chains) {
        assert!(matches!(sample.stop, StopReason::Complete | StopReason::FramePointerEnd), "{:?}", sample.stop);
    }
}

/// A handler is interrupted by another signal.
#[test]
fn signal_frames_stack() {
    let _alone = support::begin();
    let Some(chains) = chains("signed") else { return };
    let sample = support::in_a_handler(&chains, 5, 7).expect("the leaf was reached");
    assert_eq!((&sample.ours, sample.stop), (&sample.oracle, StopReason::Complete));
    assert!(holds(&sample.ours, &sample.shadow));
    let trampolines = sample.ours.iter().filter(|pc| support::is_sigreturn(**pc)).count();
    assert_eq!(trampolines, 1, "{:x?}", sample.ours);
}

/// At any instruction: the emulator takes signals between any two (`-singlestep`), so does a CPU.
fn anywhere(name: &str, by_libgcc: bool) {
    let _alone = support::begin();
    let Some(chains) = chains(name) else { return };
    let seen: Seen = support::anywhere(&chains, captures(), by_libgcc);
    let tail = seen.reused.load(Relaxed);
    let (taken, stubs) = (seen.taken.load(Acquire), seen.stubs.load(Relaxed));
    println!("{name}: {taken} walks, {tail} frames reused, {stubs} in stubs of the procedure linkage table");
    if let Some(wrong) = seen.wrong.into_inner().expect("not poisoned") {
        panic!("{name}, after {taken} walks:\n{wrong}");
    }
    assert!(taken >= captures() && tail > 0, "{taken} walks, {tail} frames reused");
}

#[test]
fn interrupted_anywhere_all_walks_are_whole() {
    anywhere("plain", true);
    anywhere("signed", true);
}

/// Writes recordings for machines of other kinds: UU_RECORD_TO says where.
#[test]
fn recordings() {
    let Some(folder) = std::env::var_os("UU_RECORD_TO").map(PathBuf::from) else {
        eprintln!("skipped: recordings are made when UU_RECORD_TO says where to");
        return;
    };
    let _alone = support::begin();
    for (name, about) in
        [("plain", "-O2"), ("signed", "-O2 -mbranch-protection=standard"), ("pointers", "frame pointers only")]
    {
        let chains = chains(name).expect("the libraries are compiled");
        let save = |file: &str, sample: &Sample, what: &str| {
            let mut recording = sample.recording.clone();
            recording.about = format!("{what}; chain.c, {about}; see ci/aarch64");
            if name == "pointers" {
                recording.chain.clear();
            }
            std::fs::write(folder.join(format!("{name}-{file}.txt")), recording.print()).expect("a file is written");
        };
        save("leaf", &support::in_the_leaf(&chains, 12, 77).expect("the leaf"), "a signal in a leaf");
        save("nested", &support::in_a_handler(&chains, 6, 5).expect("the leaf"), "a signal in a signal's handler");
        if name != "pointers" {
            let sample = support::at_an_entry(&chains).expect("an entry is met");
            save("entry", &sample, "interrupted before the return address was stored");
        }
    }
}
