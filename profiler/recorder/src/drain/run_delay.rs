//! How long threads that could run have waited for a processor: on a busy machine, this is where the time of a program
//! is that computes, and that is shown as if it had waited for something.

use super::Drain;
use crate::block_owners::{ThreadUse, Use};
use uunwind_elf::process;

/// At most this number of threads is asked in a look. A look comes once a second.
const MOST: usize = 256;

impl Drain {
    /// Asks the kernel how long the threads have waited so far, also those that have ended and have not been waited
    /// for.
    pub fn look_at_run_delays(&mut self) {
        // Where nothing runs, nothing waits to.
        if self.rests {
            return;
        }
        let threads = self.uses.iter_mut().flatten().filter_map(|used| match used {
            Use::Thread(thread) => Some(thread),
            Use::Process(_) => None,
        });
        threads.take(MOST).for_each(|thread| thread.look_at_run_delay());
    }

    /// Counts the waiting of a thread that has ended as its process's.
    pub(super) fn add_run_delay(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return };
        thread.look_at_run_delay();
        let (process, delay) = (thread.process_block, thread.run_delay());
        if let Some(process) = self.process(process) {
            process.run_delay = process.run_delay.saturating_add(delay);
        }
    }
}

impl ThreadUse {
    fn look_at_run_delay(&mut self) {
        if let Some((cpu, now)) = run_delay(self.pid, self.tid) {
            self.cpu = self.cpu.max(cpu);
            // A number that goes down is another thread's, with the same id.
            let (first, last) = self.run_delays.get_or_insert((now, now));
            (*first, *last) = if now < *last { (*first, *last) } else { (*first, now) };
        }
    }

    /// Since the first look, which was soon after its start, or after its program's: a thread goes on through exec.
    pub(super) fn run_delay(&self) -> u64 {
        self.run_delays.map_or(0, |(first, last)| last.saturating_sub(first))
    }
}

/// CPU time of a thread, and the time for which it has waited for a processor, in ns: the first two numbers of
/// [schedstat](https://docs.kernel.org/scheduler/sched-stats.html). `None`: it is gone, or the kernel does not say.
fn run_delay(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(process::file(pid, &format!("task/{tid}/schedstat"))).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that compute on one processor: each waits for it about as long as it runs.
    #[test]
    fn who_shares_a_processor_waits_for_it() {
        let own = std::process::id();
        let tid = || {
            let link = std::fs::read_link("/proc/thread-self").expect("procfs");
            link.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("an id")
        };
        if run_delay(own, tid()).is_none() {
            return;
        }
        let cpu = {
            let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
            // SAFETY: the set is all zero, and belongs to this function.
            unsafe {
                assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()), 0);
                let set = set.assume_init();
                (0..1024).find(|cpu| libc::CPU_ISSET(*cpu, &set)).expect("a processor")
            }
        };
        let both = std::sync::Barrier::new(2);
        let compute = || {
            // SAFETY: as above, of the calling thread.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
            }
            let used = || uunwind_core::syscall::thread_cpu_ns();
            let (begun, before) = (used(), run_delay(own, tid()).expect("numbers").1);
            // From here on both can run.
            both.wait();
            while used() - begun < 200_000_000 {}
            run_delay(own, tid()).expect("numbers").1 - before
        };
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(compute), scope.spawn(compute)].map(|thread| thread.join().expect("no panic"))
        });
        // The last one to be done has waited while the other one ran.
        assert!(one.max(other) >= 100_000_000, "{one} {other}");
    }
}
