//! Sections that are written when a process or the recording ends: counters and totals.

use super::wire::{Malformed, Put, Reader};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {
        /// What a process counted. Fields are added at the end only; a shorter section reads as zeros.
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
    /// Threads without a timer.
    timers_failed: "threads whose timer the kernel refused (raise `ulimit -i`)";
    /// Dropped because the thread was in a walk.
    nested: "samples dropped inside another walk";
    /// Dropped because the signal stack was too small.
    small_stack: "samples dropped on a small signal stack";
    /// Faults contained during walks.
    faults_contained: "faults contained during walks";
    /// Names that could not be sent.
    names_lost: "frames left unnamed: no room for their names, or these could not be read";
    /// Overlay calls that lost the interpreter's frames.
    desync: "interpreter frames missing or doubtful";
    /// Objects that found no room.
    objects_full: "walks met objects that the table has no room for, and looked them up anew";
    /// Errno-like reason why the process stopped recording; 0 while it recorded.
    disabled: "";
    /// CPU time of its ended threads, ns.
    cpu_ended: "";
    /// Rings found damaged.
    damaged_rings: "damaged rings, what they held was dropped";
    /// Records that could not be understood.
    damaged_records: "damaged records, dropped";
    /// Frames of all samples.
    frames_told: "";
    /// Those of them that were taken over from the thread's sample before.
    frames_reused: "";
    /// Frames stepped by interpreting unwind information in place.
    interpreted: "frames met before their object's rule table (their unwind information was interpreted in place)";
    /// Functions of JITs without a window.
    frames_lost: "functions whose registered unwind data could not be used";
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

/// Why the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EndCause {
    /// The program ended.
    #[default]
    ProgramEnded,
    /// The duration asked for was over; the program ran on.
    Duration,
}

/// What is known when the recording ends. Its presence says that the recording is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// Why it ended.
    pub cause: EndCause,
    /// Raw wait status of the program, if it ended.
    pub wait_status: Option<u32>,
    /// CPU time used by the program and the children it waited for, in ns; 0 when unknown.
    pub cpu_used: u64,
    /// CPU time that the recorder itself used, in ns.
    pub recorder_cpu: u64,
    /// Samples written, to check the file against.
    pub samples: u64,
    /// Threads that found no block in the session.
    pub threads_without_block: u64,
    /// Processes that found no block in the session.
    pub processes_without_block: u64,
}

impl End {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.time);
        out.put_u32(match self.cause {
            EndCause::ProgramEnded => 0,
            EndCause::Duration => 1,
        });
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
        let cause = if r.u32("cause")? == 1 { EndCause::Duration } else { EndCause::ProgramEnded };
        let (known, status) = (r.u32("status flag")?, r.u32("wait status")?);
        Ok(End {
            time,
            cause,
            wait_status: (known != 0).then_some(status),
            cpu_used: r.u64("CPU time")?,
            recorder_cpu: r.u64("CPU time of the recorder")?,
            samples: r.u64("number of samples")?,
            threads_without_block: r.u64("threads without a block")?,
            processes_without_block: r.u64("processes without a block")?,
        })
    }
}
