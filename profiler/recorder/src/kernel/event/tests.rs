//! Events on a thread of the test's own, whose work in the kernel is one known system call.

use super::*;
use crate::kernel::functions::KernelFunctions;
use crate::kernel::records::KernelSample;
use crate::machine::own_thread_cpu;
use std::io::Read;
use std::sync::mpsc::channel;
use std::time::Duration;

/// CPU time that a thread uses under an event.
const USED: u64 = 300_000_000;

/// The samples of a thread that calls `work` until it has used that CPU time; the number of lost records, and what
/// it has used, in ns. `None`: the kernel does not allow it, which is reported.
fn sampled(period: u64, sees: Sees, mut work: impl FnMut() + Send) -> Option<(Vec<KernelSample>, u64, u64)> {
    std::thread::scope(|scope| {
        let ((send, tid), (go, wait)) = (channel(), channel::<bool>());
        let thread = scope.spawn(move || {
            // SAFETY: no preconditions.
            send.send(unsafe { libc::gettid() } as u32).expect("the test waits");
            if !wait.recv().expect("the test sends") {
                return 0;
            }
            let begin = own_thread_cpu();
            while own_thread_cpu() - begin < USED {
                work();
            }
            own_thread_cpu() - begin
        });
        let opened = Event::open(tid.recv().expect("the thread sends"), period, sees);
        go.send(opened.is_ok()).expect("the thread waits");
        let mut event = match opened {
            Ok(event) => event,
            Err(e) => {
                uunwind_skips::skipped("the kernel's samples of a thread", &format!("perf_event_open: {e}"));
                return None;
            }
        };
        let (mut samples, mut lost) = (Vec::new(), 0);
        let mut drain = |event: &mut Event| {
            event.drain(|record| match record {
                PerfRecord::Sample(sample) => samples.push(sample),
                PerfRecord::Lost(n) => lost += n,
                _ => {}
            })
        };
        while !thread.is_finished() {
            uunwind_clock::sleep(Duration::from_millis(2));
            drain(&mut event);
        }
        event.stop();
        drain(&mut event);
        assert_eq!(event.damaged, 0);
        Some((samples, lost, thread.join().expect("the thread")))
    })
}

#[test]
fn the_kernel_stack_leads_to_the_system_call_that_the_thread_is_in() {
    let mut zero = std::fs::File::open("/dev/zero").expect("/dev/zero");
    let mut buffer = vec![0; 1 << 20];
    let Some((samples, ..)) = sampled(1_000_000, Sees::All, || zero.read_exact(&mut buffer).expect("zeros")) else {
        return;
    };
    let inside: Vec<_> = samples.iter().filter(|sample| !sample.kernel.is_empty()).collect();
    assert!(inside.len() * 2 > samples.len(), "{} of {} samples in the kernel", inside.len(), samples.len());
    let functions = KernelFunctions::read().expect("/proc/kallsyms");
    if functions.are_hidden() {
        return uunwind_skips::skipped("names of the kernel's functions", "kptr_restrict hides their addresses");
    }
    let passes = |sample: &KernelSample, name: &str| {
        sample.kernel.iter().any(|address| functions.at(*address).is_some_and(|f| f.name == name))
    };
    // read(2) is this function (fs/read_write.c); the one in the table of system calls jumps to it.
    let entry = "ksys_read";
    let reading: Vec<_> = inside.iter().filter(|sample| passes(sample, entry)).collect();
    assert!(reading.len() * 10 > inside.len() * 9, "{} of {} in {entry}", reading.len(), inside.len());
    // All of them have left user mode at the one system call instruction.
    let mut places: Vec<_> = reading.iter().filter_map(|sample| sample.at).map(|at| at.pc).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 1, "{places:x?}");
}

#[test]
fn the_rate_is_not_bound_to_the_tick() {
    let Some((samples, lost, used)) = sampled(200_000, Sees::All, || {}) else { return };
    let (found, due) = (samples.len() as u64 + lost, used / 200_000);
    assert!(found * 100 >= due * 95 && found <= due + due / 20 + 5, "{found} samples ({lost} lost), {due} are due");
    assert!(samples.windows(2).all(|pair| pair[0].time < pair[1].time));
}

#[test]
fn an_event_for_user_mode_sees_no_kernel_stack() {
    let Some((samples, ..)) = sampled(1_000_000, Sees::UserMode, || {}) else { return };
    assert!(!samples.is_empty() && samples.iter().all(|sample| sample.kernel.is_empty() && sample.at.is_some()));
}
