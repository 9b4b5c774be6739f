//! Sections that are written when a process or the recording ends: counters and totals.

use crate::wire::{Malformed, Put, Reader};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {
        /// What a process counted. Fields are added at the end only; missing ones are read as zero.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter that is not zero, with its text for people. CPU time is not a loss and is left out.
            pub fn losses(&self) -> Vec<(&'static str, u64)> {
                [$(($text, self.$name),)*].into_iter().filter(|(text, n)| *n > 0 && !text.is_empty()).collect()
            }

            /// Adds another process's counters.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            fn values(&self) -> Vec<u64> {
                vec![$(self.$name,)*]
            }

            fn from_values(values: &[u64]) -> Counters {
                let mut values = values.iter().copied();
                Counters { $($name: values.next().unwrap_or(0),)* }
            }
        }
    };
}

counters! {
    /// Threads for which the kernel created no timer.
    timers_failed: "threads whose timer the kernel refused (raise `ulimit -i`)";
    /// Samples dropped because the thread was in a walk already.
    nested: "samples dropped inside another walk";
    /// Samples dropped because the signal stack was too small.
    small_stack: "samples dropped on a small signal stack";
    /// Memory faults that the walk survived.
    faults_contained: "faults contained during walks";
    /// Names that could not be sent.
    names_lost: "frames left unnamed: no room for their names, or these could not be read";
    /// Always 0: each sample has a flag for this.
    reserved: "";
    /// Objects that the table had no room for.
    objects_full: "walks met objects that the table has no room for, and looked them up anew";
    /// Why the process stopped recording, a number like errno; 0 if it recorded to its end.
    disabled: "";
    /// CPU time of its ended threads, in ns.
    cpu_ended: "";
    /// Rings that the recorder found damaged.
    damaged_rings: "damaged rings, what they held was dropped";
    /// Records that the recorder could not parse.
    damaged_records: "damaged records, dropped";
    /// Frames of all samples.
    frames_emitted: "";
    /// Frames that were replayed from the thread's previous sample.
    frames_reused: "";
    /// Frames stepped by interpreting unwind information, for lack of a rule table.
    interpreted: "frames met before their object's rule table (their unwind information was interpreted in place)";
    /// Functions of JITs without a window.
    frames_lost: "functions whose registered unwind data could not be used";
    /// Bytes that the records of its samples took in the rings of its threads.
    sample_bytes: "";
    /// CPU time that its threads used before their sampling began and that neither a sample nor a start stands for, in
    /// ns.
    cpu_before: "";
    /// Time for which its threads could run and had no processor, in ns, as far as the recorder has seen it.
    run_delay: "";
    /// Sampled allocations, or waits, that are in no ring.
    allocations_lost: "samples were lost: their thread could not be sampled, or uu did not come to read them";
    /// Bytes of these, or ns.
    allocated_lost: "";
    /// Sampled allocations that the table of live ones had no room for.
    untracked: "sampled allocations are in the total only: no room to remember them until they are freed";
    /// Frees that the log had no room for.
    frees_lost: "frees were lost: uu did not come to read them, and what they freed seems to be held";
    /// Sampling periods in which its recording was paused.
    paused: "";
    /// Time in which its threads waited and that no sample stands for, in ns, at most; with waits only.
    waits_unseen: "";
    /// Sampled allocations whose address was given out again before a free of it was seen.
    frees_unseen: "sampled allocations were freed in a way that uu does not see, and end where their address came again";
}

impl Counters {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let values = self.values();
        out.put_u32(values.len() as u32);
        for n in values {
            out.put_u64(n);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Counters, Malformed> {
        let count = r.count(8, "number of counters")?;
        let values = (0..count).map(|_| r.u64("counter")).collect::<Result<Vec<_>, _>>()?;
        Ok(Counters::from_values(&values))
    }
}

uunwind_core::numbered! {
    /// Why the recording ended.
    #[derive(Default)]
    pub enum EndCause: u32 {
        /// The program ended.
        #[default]
        ProgramEnded = 0;
        /// The requested duration was over; the program continued.
        Duration = 1;
        /// The user ended it; the program continued.
        Asked = 2;
        /// This is a snapshot; the recording went on.
        Snapshot = 3;
    }
}

/// The last section of a recording. Its presence proves that the recording is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Time of the end, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Why it ended.
    pub cause: EndCause,
    /// Raw wait status of the program, if it ended.
    pub wait_status: Option<u32>,
    /// CPU time used by the program and the children that it waited for, in ns; 0 if not available.
    pub cpu_used: u64,
    /// CPU time that the recorder itself used, in ns.
    pub recorder_cpu: u64,
    /// Number of samples written, to check the file against.
    pub samples: u64,
    /// Threads for which the session had no block.
    pub threads_without_block: u64,
    /// Processes for which the session had no block.
    pub processes_without_block: u64,
}

impl End {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.time);
        out.put_u32(self.cause.number());
        out.put_u32(u32::from(self.wait_status.is_some()));
        out.put_u32(self.wait_status.unwrap_or(0));
        for n in
            [self.cpu_used, self.recorder_cpu, self.samples, self.threads_without_block, self.processes_without_block]
        {
            out.put_u64(n);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<End, Malformed> {
        let time = r.u64("end time")?;
        let cause = EndCause::from_number(r.u32("cause")?).unwrap_or_default();
        let (has_status, status) = (r.u32("status flag")?, r.u32("wait status")?);
        Ok(End {
            time,
            cause,
            wait_status: (has_status != 0).then_some(status),
            cpu_used: r.u64("CPU time")?,
            recorder_cpu: r.u64("CPU time of the recorder")?,
            samples: r.u64("number of samples")?,
            threads_without_block: r.u64("threads without a block")?,
            processes_without_block: r.u64("processes without a block")?,
        })
    }
}
