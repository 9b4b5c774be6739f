//! What a recording holds, section by section. Each type writes and reads its own bytes (docs/recording-format.md).

use crate::wire::{Malformed, Put, Reader};
use uunwind_core::stop_reason::StopReason;

/// How the recording was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Version of the uu that recorded.
    pub uu_version: String,
    /// Program and arguments, as given.
    pub command: Vec<Vec<u8>>,
    /// Pid of the program.
    pub pid: u32,
    /// Requested sampling rate, in Hz of CPU time.
    pub rate: u32,
    /// Timer tick of the kernel, in Hz; 0 if not available.
    pub kernel_hz: u32,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
    /// Host name.
    pub host: String,
    /// Kernel release and machine.
    pub kernel: String,
    /// Wall-clock time of the start, in ns since 1970.
    pub start_unix: u64,
    /// CLOCK_MONOTONIC at the start, in ns.
    pub start_monotonic: u64,
}

impl Settings {
    /// The one of `flags` that says that threads that wait were sampled, too (`uunwind_ring::FLAG_WALL`).
    pub const WALL: u32 = 32;
    /// The one of `flags` that says that allocations were sampled, and that `rate` is the number of bytes from a sample
    /// to the next, on average; 1: every allocation is one (`uunwind_ring::FLAG_ALLOC`).
    pub const ALLOC: u32 = 1024;
    /// The one of `flags` that says that anonymous mappings count as allocations, too (`uunwind_ring::FLAG_MAPPINGS`).
    pub const MAPPINGS: u32 = 4096;
    /// The one of `flags` that says that waits for locks were sampled, and that `rate` is the time in ns from a sample
    /// to the next, on average; 1: every wait is one (`uunwind_ring::FLAG_LOCK`).
    pub const LOCK: u32 = 2048;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.uu_version.as_bytes());
        out.put_u32(self.command.len() as u32);
        for word in &self.command {
            out.put_bytes(word);
        }
        for n in [self.pid, self.rate, self.kernel_hz, self.flags] {
            out.put_u32(n);
        }
        out.put_bytes(self.host.as_bytes());
        out.put_bytes(self.kernel.as_bytes());
        out.put_u64(self.start_unix);
        out.put_u64(self.start_monotonic);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Settings, Malformed> {
        let uu_version = r.text("version of uu")?;
        let words = r.count(4, "number of command words")?;
        let command = (0..words).map(|_| Ok(r.bytes("command word")?.to_vec())).collect::<Result<_, _>>()?;
        Ok(Settings {
            uu_version,
            command,
            pid: r.u32("pid")?,
            rate: r.u32("rate")?,
            kernel_hz: r.u32("kernel tick")?,
            flags: r.u32("flags")?,
            host: r.text("host name")?,
            kernel: r.text("kernel release")?,
            start_unix: r.u64("start time")?,
            start_monotonic: r.u64("start time")?,
        })
    }
}

/// One process image: a pid from its fork or exec until its next exec or its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// How the image came to be: 0 exec, 1 fork.
    pub origin: u32,
    /// Beginning, in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// Path of its executable; empty if the process was gone before it could be read.
    pub exe: Vec<u8>,
    /// Names of its plugins by index; index 0 is unused.
    pub plugins: Vec<String>,
    /// Its command line, in a section of its own ([`Writer::command`](crate::Writer::command)); empty if the process
    /// was gone before it could be read.
    pub command: Vec<Vec<u8>>,
}

/// What follows the last slash of a path.
fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

impl Process {
    /// The file name by which its program was called, where its command line has it. A program may have written a title
    /// there, so a first word counts if it is this `typed` name, or if nothing speaks for a title: no more than one
    /// word in it, and either arguments after it, none of which was cleared at the end, or a path, or a name that
    /// begins as the file's does.
    pub fn called(&self, typed: &[u8]) -> Option<&[u8]> {
        const ALIKE: usize = 3;
        let first = self.command.first()?;
        let word = first.split(|byte| *byte == b' ').next()?;
        let name = file_name(word);
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-".contains(byte);
        let is_name = !name.starts_with(b"-") && !name.is_empty() && name.iter().all(is_plain);
        let alike = name.iter().zip(file_name(&self.exe)).take_while(|(a, b)| a == b).count();
        let rest = self.command.get(1..).unwrap_or_default();
        let is_cleared = rest.last().is_some_and(|word| word.is_empty());
        let is_alone = rest.is_empty() && !word.contains(&b'/') && alike < ALIKE;
        let is_title = word.len() != first.len() || is_cleared || is_alone;
        (is_name && (name == typed || !is_title)).then_some(name)
    }

    /// The title that its program has written over its command line, if it has several words, as servers' have.
    pub fn title(&self) -> Option<&[u8]> {
        let (first, rest) = self.command.split_first()?;
        let is_title = first.contains(&b' ') && *first != self.exe && rest.iter().all(Vec::is_empty);
        is_title.then(|| first.trim_ascii_end())
    }

    /// Splits what `/proc/PID/cmdline` holds: words that each end with a zero
    /// ([proc_pid_cmdline(5)](https://man7.org/linux/man-pages/man5/proc_pid_cmdline.5.html)).
    pub fn words(cmdline: &[u8]) -> Vec<Vec<u8>> {
        match cmdline.strip_suffix(b"\0").unwrap_or(cmdline) {
            b"" => Vec::new(),
            line => line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect(),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.pid, self.parent, self.origin] {
            out.put_u32(n);
        }
        out.put_u64(self.start);
        out.put_bytes(&self.exe);
        Process::encode_plugins(&self.plugins, out);
    }

    pub(super) fn encode_plugins(plugins: &[String], out: &mut Vec<u8>) {
        out.put_u32(plugins.len() as u32);
        for name in plugins {
            out.put_bytes(name.as_bytes());
        }
    }

    pub(super) fn decode_plugins(r: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
        let count = r.count(4, "number of plugins")?;
        (0..count).map(|_| r.text("plugin name")).collect()
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Process, Malformed> {
        let (pid, parent, origin) = (r.u32("pid")?, r.u32("parent pid")?, r.u32("origin")?);
        let (start, exe) = (r.u64("start time")?, r.bytes("executable")?.to_vec());
        let plugins = Process::decode_plugins(r)?;
        Ok(Process { pid, parent, origin, start, exe, plugins, command: Vec::new() })
    }
}

/// A thread of a process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Index of its process in the recording.
    pub process: u32,
    /// Thread id (gettid).
    pub tid: u32,
    /// The thread's name (`comm`); empty if it was never sent.
    pub name: String,
}

/// An object mapped by a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Index of the process in the recording.
    pub process: u32,
    /// Time from which the mapping holds, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Load bias: process address minus file address.
    pub bias: u64,
    /// First mapped process address.
    pub start: u64,
    /// End of the mapping, exclusive.
    pub end: u64,
    /// Object key: equal for loads of one file.
    pub facts_key: u64,
    /// Build-id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Path as the process saw it.
    pub path: Vec<u8>,
}

impl Object {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.process);
        for n in [self.time, self.bias, self.start, self.end, self.facts_key] {
            out.put_u64(n);
        }
        out.put_bytes(&self.build_id);
        out.put_bytes(&self.path);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Object, Malformed> {
        Ok(Object {
            process: r.u32("process")?,
            time: r.u64("time")?,
            bias: r.u64("load bias")?,
            start: r.u64("start")?,
            end: r.u64("end")?,
            facts_key: r.u64("facts key")?,
            build_id: r.bytes("build-id")?.to_vec(),
            path: r.bytes("path")?.to_vec(),
        })
    }
}

/// The name record of a code object of an interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Index of the process to which the name id belongs.
    pub process: u32,
    /// Name id within the process.
    pub id: u32,
    /// Plugin index within the process.
    pub plugin: u32,
    /// Process address of the code object.
    pub code: u64,
    /// Fingerprint of the code object's names and line table.
    pub fingerprint: u64,
    /// First line of the function.
    pub first_line: u32,
    /// Format of the line table, `uunwind_core::plugin::TABLE_*`.
    pub table_kind: u32,
    /// Name of the function, qualified if the runtime has it; empty: it has none.
    pub name: String,
    /// Path of the source file, as the runtime has it; empty: it has none.
    pub file: String,
    /// Line table, raw; empty if it could not be copied.
    pub table: Vec<u8>,
}

impl Name {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.process, self.id, self.plugin] {
            out.put_u32(n);
        }
        out.put_u64(self.code);
        out.put_u64(self.fingerprint);
        out.put_u32(self.first_line);
        out.put_u32(self.table_kind);
        out.put_bytes(self.name.as_bytes());
        out.put_bytes(self.file.as_bytes());
        out.put_bytes(&self.table);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Name, Malformed> {
        Ok(Name {
            process: r.u32("process")?,
            id: r.u32("name id")?,
            plugin: r.u32("plugin")?,
            code: r.u64("code address")?,
            fingerprint: r.u64("fingerprint")?,
            first_line: r.u32("first line")?,
            table_kind: r.u32("kind of line table")?,
            name: r.text("name")?,
            file: r.text("file name")?,
            table: r.bytes("line table")?.to_vec(),
        })
    }
}

/// A frame and its caller. Node 0 is the empty stack and is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Node of the caller: smaller than this node's own number.
    pub parent: u32,
    /// Frame word (`uunwind_core::frame`).
    pub word: u64,
    /// Position word of a semantic frame, else 0.
    pub position: u64,
}

impl Node {
    pub(super) const BYTES: usize = 20;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.parent);
        out.put_u64(self.word);
        out.put_u64(self.position);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Node, Malformed> {
        Ok(Node { parent: r.u32("parent")?, word: r.u64("frame word")?, position: r.u64("position")? })
    }
}

/// One sample: a stack of one thread at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index of the thread in the recording.
    pub thread: u32,
    /// Node of the leaf frame; 0 for no frames.
    pub stack: u32,
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Number of periods of CPU time that it stands for; of a fatal one, the number of the signal; of an allocation,
    /// the number of bytes, as far as 32 bits hold it.
    pub weight: u32,
    /// Number of its stop reason (`uunwind_core::stop_reason`); 0: the walk did not run.
    pub stop: u16,
    /// `uunwind_ring::record::SampleKind`.
    pub kind: u8,
    /// `uunwind_ring::record::SAMPLE_*`.
    pub flags: u8,
}

/// CPU time that threads without a sample had used when their timers were armed: for exec and the dynamic loader, if it
/// is a process's main thread. It is no sample: the thread was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Index of the thread in the recording at whose end the time was full.
    pub thread: u32,
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Number of periods of CPU time.
    pub weight: u32,
}

/// One time in which a thread was off its CPU because it waited, as the scheduler saw it: from the moment at which it
/// was taken off until it ran again. Its waiting samples are those of the thread that lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Index of the thread in the recording.
    pub thread: u32,
    /// Time in ns of CLOCK_MONOTONIC.
    pub begin: u64,
    /// Length in ns.
    pub duration: u64,
}

/// How a sampled thread stood to the lock that a language's runtime runs code under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// No runtime with a lock was met so far, or its plugin could not say.
    Unknown,
    /// It neither held the lock nor waited for it.
    None,
    /// It held the lock.
    Held,
    /// It waited for the lock.
    Waiting,
}

impl Lock {
    /// All of them, by their numbers in a sample's flags.
    pub const ALL: [Lock; 4] = [Lock::Unknown, Lock::None, Lock::Held, Lock::Waiting];
}

impl Sample {
    /// `kind` of a sample that stands for no time: the last stack of a thread in which a signal ended its process.
    pub const FATAL: u8 = 2;

    /// `kind` of a sample that a timer has taken.
    pub(super) const TIMER: u8 = 0;

    /// `kind` of a sample of an allocation.
    pub const ALLOCATION: u8 = 4;
    /// `kind` of a sample of an allocation that is an anonymous mapping.
    pub const MAPPING: u8 = 6;

    /// `kind` of a sample of a wait for a lock.
    pub const LOCKED: u8 = 5;

    /// Lowest of the two bits of `flags` that hold the [`Lock`] (`uunwind_ring::record::SAMPLE_LOCK_SHIFT`).
    pub const LOCK_SHIFT: u32 = 5;

    pub(super) const BYTES: usize = 24;

    /// How the thread stood to its runtime's lock.
    pub fn lock(&self) -> Lock {
        Lock::ALL.get(usize::from(self.flags >> Sample::LOCK_SHIFT & 3)).copied().unwrap_or(Lock::Unknown)
    }

    /// The stop reason, if this version defines its number.
    pub fn reason(&self) -> Option<StopReason> {
        StopReason::from_number(self.stop)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.thread);
        out.put_u32(self.stack);
        out.put_u64(self.time);
        out.put_u32(self.weight);
        out.put_u16(self.stop);
        out.extend_from_slice(&[self.kind, self.flags]);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Sample, Malformed> {
        Ok(Sample {
            thread: r.u32("thread")?,
            stack: r.u32("stack")?,
            time: r.u64("time")?,
            weight: r.u32("weight")?,
            stop: r.u16("stop reason")?,
            kind: r.u8("kind")?,
            flags: r.u8("flags")?,
        })
    }
}
