//! The records of a perf ring, as the events of [`super::event`] and those of a deferring kernel write them
//! ([include/uapi/linux/perf_event.h](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/perf_event.h);
//! the deferred ones: the same file of Linux 6.19).

/// What events must sample, so that [`records`] understands them: PERF_SAMPLE_IP, _TID, _TIME, _READ, _CALLCHAIN and
/// _REGS_USER, with no read format. Other records then end with the thread and the time (`sample_id_all`).
pub const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 12;

/// The user registers to sample: stack pointer and program counter, which stand in this order in a sample
/// ([x86](https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/perf_regs.h),
/// [AArch64](https://github.com/torvalds/linux/blob/v6.12/arch/arm64/include/uapi/asm/perf_regs.h)).
#[cfg(target_arch = "x86_64")]
pub const USER_REGISTERS: u64 = 1 << 7 | 1 << 8;
/// The user registers to sample: stack pointer and program counter.
#[cfg(target_arch = "aarch64")]
pub const USER_REGISTERS: u64 = 1 << 31 | 1 << 32;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_SWITCH: u32 = 14;
const RECORD_CALLCHAIN_DEFERRED: u32 = 22;

/// Of a switch: the thread was taken off its CPU; and that though it could have gone on.
const MISC_SWITCH_OUT: u32 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u32 = 1 << 14;

/// Markers in a chain: what follows them was executed in the kernel, in user mode, or comes later under a cookie.
const CONTEXT_KERNEL: u64 = (-128i64) as u64;
const CONTEXT_USER_DEFERRED: u64 = (-640i64) as u64;
/// The lowest value that is a marker (PERF_CONTEXT_MAX), not an address.
const CONTEXT_LAST: u64 = (-4095i64) as u64;

/// A thread's state in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAt {
    /// Program counter, a process address.
    pub pc: u64,
    /// Stack pointer, a process address.
    pub sp: u64,
}

/// One sample of the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSample {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// CLOCK_MONOTONIC, in ns.
    pub time: u64,
    /// CPU time of the thread since the event began, in ns, also where it was in no sample.
    pub cpu: u64,
    /// Kernel addresses, leaf first; empty: the thread was in user mode, or the kernel may not be looked at.
    pub kernel: Vec<u64>,
    /// Process addresses, leaf first, where the kernel has taken them, too.
    pub user: Vec<u64>,
    /// Where the thread left user mode. `None`: it has no user mode.
    pub at: Option<UserAt>,
    /// The user stack comes later, in a [`DeferredStack`] with this cookie of the same thread.
    pub cookie: Option<u64>,
}

/// A user stack that was taken when the thread returned to user mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeferredStack {
    /// Thread id.
    pub tid: u32,
    /// The cookie of the samples that it belongs to.
    pub cookie: u64,
    /// Process addresses, leaf first; may be empty.
    pub user: Vec<u64>,
}

/// The scheduler has taken a thread off its CPU, or given it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// CLOCK_MONOTONIC, in ns.
    pub time: u64,
    /// What the thread does from then on.
    pub to: SwitchTo,
}

/// What a thread does after a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// It runs.
    Running,
    /// It is ready to run.
    Ready,
    /// It waits.
    Waiting,
}

/// A record of an event's ring that the recorder makes use of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerfRecord {
    /// One sample.
    Sample(KernelSample),
    /// A user stack for earlier samples.
    Deferred(DeferredStack),
    /// The thread was taken off its CPU, or given one.
    Switch(Switch),
    /// This number of records found the ring full.
    Lost(u64),
    /// One that is not needed.
    Other,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its size is no multiple of 8, below 8, or leads past the end. Nothing after it can be found.
    Size,
    /// A part of it is missing.
    Parts,
}

/// Decodes records that follow each other. After a wrong size it ends.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<PerfRecord, Damage>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let mut header = Words(rest);
        let (kind, sizes) = (header.half()?, header.half()?);
        let size = (sizes >> 16) as usize;
        let body = rest.get(8..size).filter(|_| size.is_multiple_of(8));
        rest = if body.is_some() { rest.get(size..)? } else { &[] };
        let misc = sizes & 0xffff;
        Some(body.map_or(Err(Damage::Size), |body| decode(kind, misc, Words(body)).ok_or(Damage::Parts)))
    })
}

fn decode(kind: u32, misc: u32, mut words: Words<'_>) -> Option<PerfRecord> {
    Some(match kind {
        RECORD_SAMPLE => PerfRecord::Sample(sample(&mut words)?),
        RECORD_LOST => {
            words.word()?;
            PerfRecord::Lost(words.word()?)
        }
        RECORD_SWITCH => {
            // Thread and time of `sample_id_all`.
            let (_pid, _tid, time) = (words.half()?, words.half()?, words.word()?);
            let to = match misc & (MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT) {
                0 | MISC_SWITCH_OUT_PREEMPT => SwitchTo::Running,
                MISC_SWITCH_OUT => SwitchTo::Waiting,
                _ => SwitchTo::Ready,
            };
            PerfRecord::Switch(Switch { time, to })
        }
        RECORD_CALLCHAIN_DEFERRED => {
            let cookie = words.word()?;
            let user = words.list()?.into_iter().filter(|ip| *ip < CONTEXT_LAST).collect();
            let _pid = words.half()?;
            PerfRecord::Deferred(DeferredStack { tid: words.half()?, cookie, user })
        }
        _ => PerfRecord::Other,
    })
}

/// In the order of
/// [perf_output_sample](https://github.com/torvalds/linux/blob/v6.12/kernel/events/core.c).
fn sample(words: &mut Words<'_>) -> Option<KernelSample> {
    let _ip = words.word()?;
    let (pid, tid, time, cpu) = (words.half()?, words.half()?, words.word()?, words.word()?);
    let mut sample = KernelSample { pid, tid, time, cpu, ..KernelSample::default() };
    let mut context = 0;
    for word in words.list()? {
        match word {
            CONTEXT_LAST.. => context = word,
            _ if context == CONTEXT_KERNEL => sample.kernel.push(word),
            _ if context == CONTEXT_USER_DEFERRED => sample.cookie = Some(word),
            _ => sample.user.push(word),
        }
    }
    const ABI_NONE: u64 = 0;
    if words.word()? != ABI_NONE {
        let (sp, pc) = (words.word()?, words.word()?);
        sample.at = Some(UserAt { pc, sp });
    }
    Some(sample)
}

/// Reads numbers from the front of a record.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn half(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }

    /// A number, and that many words. What is allocated is at most as long as the record.
    fn list(&mut self) -> Option<Vec<u64>> {
        let count = usize::try_from(self.word()?).ok()?;
        let (words, rest) = self.0.split_at_checked(count.checked_mul(8)?)?;
        self.0 = rest;
        Some(words.chunks_exact(8).map(|word| Words(word).word().unwrap_or(0)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with this payload.
    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = 8 + words.len() * 8;
        let head = u64::from(kind) | u64::from(misc) << 32 | (size as u64) << 48;
        std::iter::once(&head).chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn thread(pid: u32, tid: u32) -> u64 {
        u64::from(pid) | u64::from(tid) << 32
    }

    #[test]
    fn markers_separate_the_kernel_and_user_parts_of_a_chain() {
        let (kernel, user) = (CONTEXT_KERNEL, (-512i64) as u64);
        let body = [7, thread(1, 2), 99, 50, 5, kernel, u64::MAX << 32, 8, user, 0x40_1000, 2, 0x7ffe, 0x40_1000];
        let expected = KernelSample {
            pid: 1,
            tid: 2,
            time: 99,
            cpu: 50,
            kernel: vec![u64::MAX << 32, 8],
            user: vec![0x40_1000],
            at: Some(UserAt { pc: 0x40_1000, sp: 0x7ffe }),
            cookie: None,
        };
        let found: Vec<_> = records(&record(RECORD_SAMPLE, 1, &body)).collect();
        assert_eq!(found, [Ok(PerfRecord::Sample(expected))]);
    }

    #[test]
    fn a_deferred_stack_has_its_cookie_and_thread() {
        let waits = [7, thread(1, 2), 99, 50, 4, CONTEXT_KERNEL, 8, CONTEXT_USER_DEFERRED, 0x3_0000_0001, 0];
        let stack = [0x3_0000_0001, 2, 0x40_1000, 0x40_2000, thread(1, 2), 120];
        let bytes = [record(RECORD_SAMPLE, 1, &waits), record(RECORD_CALLCHAIN_DEFERRED, 2, &stack)].concat();
        let found: Vec<_> = records(&bytes).collect();
        let [Ok(PerfRecord::Sample(sample)), Ok(PerfRecord::Deferred(deferred))] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((&sample.kernel[..], sample.cookie, sample.at), (&[8][..], Some(0x3_0000_0001), None));
        let expected = DeferredStack { tid: 2, cookie: 0x3_0000_0001, user: vec![0x40_1000, 0x40_2000] };
        assert_eq!(*deferred, expected);
    }

    #[test]
    fn switches_say_what_the_thread_does_next() {
        let bytes = [(0, 5), (1 << 13, 6), (3 << 13, 7)].map(|(misc, time)| record(14, misc, &[thread(1, 2), time]));
        let found: Vec<_> = records(&bytes.concat()).collect();
        let switch = |time, to| Ok(PerfRecord::Switch(Switch { time, to }));
        let expected = [switch(5, SwitchTo::Running), switch(6, SwitchTo::Waiting), switch(7, SwitchTo::Ready)];
        assert_eq!(found, expected);
    }

    #[test]
    fn lost_records_are_counted_and_unknown_ones_skipped() {
        let bytes = [record(RECORD_LOST, 0, &[1, 5, thread(1, 2), 9]), record(3, 0, &[1, 2])].concat();
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [Ok(PerfRecord::Lost(5)), Ok(PerfRecord::Other)]);
    }

    #[test]
    fn damaged_records_are_refused() {
        // More addresses than the record has.
        let bytes =
            [record(RECORD_SAMPLE, 1, &[7, 0, 99, 50, u64::MAX / 8, 1]), record(RECORD_LOST, 0, &[1, 5])].concat();
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [Err(Damage::Parts), Ok(PerfRecord::Lost(5))]);
        for size in [0u64, 4, 12, 800] {
            let bytes = (u64::from(RECORD_LOST) | size << 48).to_ne_bytes();
            assert_eq!(records(&bytes).collect::<Vec<_>>(), [Err(Damage::Size)], "size {size}");
        }
        assert_eq!(records(&[9, 0, 0]).count(), 0);
    }
}
