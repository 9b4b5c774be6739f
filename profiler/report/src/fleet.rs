//! Many recordings added up, in memory that does not grow with their number: of each program and each name of a thread
//! the stacks with their values, by the names of their functions. Which process and which moment a sample is of is left
//! out; so is what tells one run's addresses from another's.

use crate::stacks::{Line, Profile, Stack};
use crate::values;
use std::collections::HashMap;
use std::mem::size_of;
use uunwind_recording::{Held, Process, Recording, Settings, Thread};

/// Weights of time are in ns, so that recordings of different rates can be added.
const RATE: u32 = 1_000_000_000;
/// What stands for stacks that were left out.
pub const LEFT_OUT: &str = "[stacks with less time]";
/// Bytes of a stack, and of a line, beside their frames and texts: the tables that find them.
const OF_STACK: usize = 3 * size_of::<Stack>();
const OF_LINE: usize = 3 * size_of::<Line>();

/// Of each thread and its stacks: what they add up to.
type Stacks = HashMap<(u32, Box<[u32]>), Sum>;

/// What the samples of a stack add up to.
#[derive(Default)]
struct Sum {
    samples: u64,
    weight: u64,
    /// As [`values::kinds`] says.
    values: Box<[u64]>,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        if self.values.len() < other.values.len() {
            self.values = vec![0; other.values.len()].into();
        }
        for (own, others) in self.values.iter_mut().zip(other.values) {
            *own = own.saturating_add(others);
        }
    }
}

/// Recordings that were added up.
pub struct Fleet {
    /// Its processes are programs, and its threads those of a program that have one name.
    recording: Recording,
    lines: HashMap<Line, u32>,
    stacks: Stacks,
    programs: HashMap<Vec<u8>, u32>,
    threads: HashMap<(u32, String), u32>,
    /// Bytes that lines and stacks may take, and take.
    room: usize,
    used: usize,
    added: u64,
    left_out: u64,
    /// Of allocations: which of them weights are of.
    held: Option<Held>,
}

impl Fleet {
    /// Nothing yet; for stacks that take at most about this number of bytes.
    pub fn new(room: usize) -> Fleet {
        Fleet {
            recording: Recording::default(),
            lines: HashMap::new(),
            stacks: HashMap::new(),
            programs: HashMap::new(),
            threads: HashMap::new(),
            room,
            used: 0,
            added: 0,
            left_out: 0,
            held: None,
        }
    }

    /// Adds a recording, and its profile as it is to be shown. The error says why it cannot be added.
    pub fn add(&mut self, recording: &Recording, profile: &Profile) -> Result<(), String> {
        let kind = recording.settings.flags & (Settings::WALL | Settings::ALLOC | Settings::LOCK);
        if self.added == 0 {
            let start_unix = recording.settings.start_unix;
            self.recording.settings = Settings { rate: RATE, flags: kind, start_unix, ..Settings::default() };
            self.held = profile.held;
        }
        self.recording.has_value_of(recording)?;
        let settings = &mut self.recording.settings;
        settings.start_unix = settings.start_unix.min(recording.settings.start_unix);
        let period = recording.value().unit.least(recording.settings.rate);
        let mut lines: Vec<Option<u32>> = vec![None; profile.lines.len()];
        let mut threads: HashMap<u32, u32> = HashMap::new();
        for (stack, values) in profile.stacks.iter().zip(values::of(recording, profile)) {
            let thread = *threads.entry(stack.thread).or_insert_with(|| self.thread(recording, stack.thread));
            let of = |index: &u32| {
                let (known, line) = (lines.get_mut(*index as usize)?, profile.lines.get(*index as usize)?);
                Some(*known.get_or_insert_with(|| line_of(&mut self.lines, &mut self.used, line)))
            };
            let own: Box<[u32]> = stack.lines.iter().filter_map(of).collect();
            let sum = Sum { samples: stack.samples, weight: stack.weight.saturating_mul(period), values };
            put(&mut self.stacks, &mut self.used, (thread, own), sum);
        }
        self.added += 1;
        if self.used > self.room {
            self.shrink();
        }
        Ok(())
    }

    /// The thread that stands for those of this program with this name.
    fn thread(&mut self, recording: &Recording, index: u32) -> u32 {
        let thread = recording.threads.get(index as usize);
        let process = thread.and_then(|thread| recording.processes.get(thread.process as usize));
        let exe = process.map_or(&b""[..], |process| process.exe.rsplit(|b| *b == b'/').next().unwrap_or_default());
        let program = process.and_then(|process| process.called(b"")).unwrap_or(exe).to_vec();
        let processes = &mut self.recording.processes;
        let process = *self.programs.entry(program.clone()).or_insert_with(|| {
            processes.push(Process { exe: program.clone(), command: vec![program], ..Process::default() });
            processes.len() as u32 - 1
        });
        let name = thread.map_or(String::new(), |thread| thread.name.clone());
        let threads = &mut self.recording.threads;
        *self.threads.entry((process, name.clone())).or_insert_with(|| {
            threads.push(Thread { process, tid: 0, name });
            threads.len() as u32 - 1
        })
    }

    /// Leaves out the stacks with least time, until half of the room is free. Their time stays, below a remark.
    fn shrink(&mut self) {
        let before = std::mem::take(&mut self.lines);
        let mut by_number: Vec<Option<Line>> = vec![None; before.len()];
        for (line, number) in before {
            if let Some(place) = by_number.get_mut(number as usize) {
                *place = Some(line);
            }
        }
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        stacks.sort_by(|((a, x), s), ((b, y), t)| t.weight.cmp(&s.weight).then(a.cmp(b)).then(x.cmp(y)));
        self.used = 0;
        let remark = Line::marker(LEFT_OUT.to_owned());
        for ((thread, lines), sum) in stacks {
            let kept = self.used <= self.room / 2;
            let is_remark =
                matches!(&lines[..], [number] if by_number.get(*number as usize) == Some(&Some(remark.clone())));
            let lines: Box<[u32]> = match kept {
                true => {
                    let of = |number: &u32| by_number.get(*number as usize)?.as_ref();
                    let line = |line: &Line| line_of(&mut self.lines, &mut self.used, line);
                    lines.iter().filter_map(of).map(line).collect()
                }
                false => [line_of(&mut self.lines, &mut self.used, &remark)].into(),
            };
            self.left_out += u64::from(!kept && !is_remark);
            put(&mut self.stacks, &mut self.used, (thread, lines), sum);
        }
    }

    /// Number of stacks that were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The sum, for formats that show stacks without their times.
    pub fn finish(mut self) -> (Recording, Profile) {
        self.recording.settings.command = vec![format!("{} recordings", self.added).into_bytes()];
        let mut lines: Vec<(Line, u32)> = self.lines.into_iter().collect();
        lines.sort_by_key(|(_, number)| *number);
        let mut stacks: Vec<_> = self.stacks.into_iter().collect();
        stacks.sort_by(|a, b| a.0.cmp(&b.0));
        let stack = |((thread, lines), Sum { samples, weight, values })| {
            (Stack { thread, lines, labels: 0, samples, weight }, values)
        };
        let (stacks, values) = stacks.into_iter().map(stack).unzip();
        let lines = lines.into_iter().map(|(line, _)| line).collect();
        (self.recording, Profile { lines, stacks, values: Some(values), held: self.held, ..Profile::default() })
    }
}

/// A line's number: without what is of one run only.
fn line_of(lines: &mut HashMap<Line, u32>, used: &mut usize, line: &Line) -> u32 {
    let line = Line { object: None, address: 0, glue: false, place: None, ..line.clone() };
    let next = lines.len() as u32;
    let texts = line.function.len() + line.file.len() + line.plugin.len();
    *lines.entry(line).or_insert_with(|| {
        *used += OF_LINE + texts;
        next
    })
}

fn put(stacks: &mut Stacks, used: &mut usize, key: (u32, Box<[u32]>), added: Sum) {
    let bytes = OF_STACK + 4 * key.1.len() + 8 * added.values.len();
    let sum = stacks.entry(key).or_insert_with(|| {
        *used += bytes;
        Sum::default()
    });
    sum.add(added);
}
