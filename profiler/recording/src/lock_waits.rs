//! Samples of waits for locks: for which lock, for how long, and who had it.

use crate::wire::{Malformed, Put, Reader};
use crate::{Amount, Recording, Sample, Settings};

/// What a sample of a wait is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWait {
    /// Index of its sample in [`Recording::samples`].
    pub sample: usize,
    /// Process address of the lock; of the end of a thread, its `pthread_t`.
    pub lock: u64,
    /// How long, in ns.
    pub duration: u64,
    /// For what: a number of `uunwind_ring::record::WaitKind`.
    pub kind: u32,
    /// Id of the thread that had the lock when the wait began; 0: not known.
    pub holder: u32,
}

impl LockWait {
    const BYTES: usize = 24;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.lock);
        out.put_u64(self.duration);
        out.put_u32(self.kind);
        out.put_u32(self.holder);
    }

    /// What it was for, for people.
    pub fn what(&self) -> &'static str {
        match self.kind {
            1 => "mutex",
            2 => "read lock",
            3 => "write lock",
            4 => "condition variable",
            5 => "semaphore",
            6 => "barrier",
            7 => "end of a thread",
            8 => "futex",
            _ => "lock",
        }
    }

    /// Whether it was for the end of a thread: that is no lock of its own.
    pub fn is_end_of_thread(&self) -> bool {
        self.kind == 7
    }
}

impl Recording {
    /// Whether waits for locks were sampled.
    pub fn is_lock(&self) -> bool {
        self.settings.flags & Settings::LOCK != 0
    }

    /// What a sampled wait stands for: a number of waits, and their time in ns in place of bytes.
    pub fn waited(&self, wait: &LockWait) -> Amount {
        Amount::of(wait.duration, self.settings.rate)
    }

    /// Reads waits: each belongs to the next sample of one.
    pub(super) fn read_lock_waits(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..r.count(LockWait::BYTES, "number of waits")? {
            let (lock, duration) = (r.u64("address of a lock")?, r.u64("duration")?);
            let (kind, holder) = (r.u32("kind of a wait")?, r.u32("holder")?);
            let from = self.lock_waits.last().map_or(0, |last| last.sample + 1);
            let is_one = |sample: &Sample| sample.kind == Sample::LOCKED;
            let next = self.samples.get(from..).and_then(|rest| rest.iter().position(is_one));
            let sample = from + next.ok_or_else(|| r.malformed("sample of a wait"))?;
            self.lock_waits.push(LockWait { sample, lock, duration, kind, holder });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, Thread, Writer};

    #[test]
    fn each_wait_has_its_sample_and_weight() {
        let mut file = Vec::new();
        let settings = Settings { rate: 1, flags: Settings::LOCK, ..Settings::default() };
        let mut writer = Writer::begin(&mut file, &settings);
        writer.process(&Process { pid: 7, ..Process::default() });
        writer.thread(&Thread { process: 0, tid: 7, ..Thread::default() });
        let sample = Sample { thread: 0, stack: 0, time: 1, weight: 1, stop: 1, kind: 0, flags: 0 };
        let wait = |duration| LockWait { sample: 0, lock: 0x1000, duration, kind: 1, holder: 8 };
        writer.lock_wait(sample, &wait(5));
        writer.sample(sample);
        writer.lock_wait(sample, &wait(7 << 32));
        writer.flush();
        drop(writer);
        let recording = Recording::parse(&file, "x".as_ref()).expect("a recording");
        assert!(recording.is_lock() && !recording.is_alloc());
        assert_eq!(recording.lock_waits, [LockWait { sample: 0, ..wait(5) }, LockWait { sample: 2, ..wait(7 << 32) }]);
        // Also above what a sample's own weight holds.
        assert_eq!(recording.weights().collect::<Vec<_>>(), [5, 1, 7 << 32]);
        let mut kept = recording;
        kept.retain_samples(|sample| sample.kind == Sample::LOCKED);
        assert_eq!(kept.lock_waits.iter().map(|wait| wait.sample).collect::<Vec<_>>(), [0, 1]);
    }
}
