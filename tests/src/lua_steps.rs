//! A Lua script that is sampled after every instruction (`targets/lua/every.lua`, by `step` of `targets/lua/step.c`).

use crate::lua_grammar::Program;
use crate::samples::{self, Frame, Sample};
use crate::uu;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use uunwind_core::stop_reason::StopReason;
use uunwind_ring::layout::{ThreadBlock, BLOCKS, BLOCK_BYTES, DATA_OFFSET, LIVE_THREAD, STATES_OFFSET};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// A stack as the first lines of its functions, innermost first.
pub type Stack = Vec<u32>;

/// The samples of one run.
#[derive(Default)]
pub struct Walked {
    /// Number of samples.
    pub samples: usize,
    /// Number of samples whose stack is incomplete or doubtful.
    pub doubtful: usize,
    /// Number of samples taken in a trace of LuaJIT, and how many of these are doubtful.
    pub on_traces: (usize, usize),
    /// Wrong stacks by what is wrong: their number, and the first one.
    pub wrong: BTreeMap<String, (usize, String)>,
    /// The stacks in order; equal ones in a row count once.
    pub stacks: Vec<Stack>,
    /// First line of the innermost function and the executing line, in the same way.
    pub lines: Vec<(u32, u32)>,
}

/// How a thread finds the ring that receives its samples, for `targets/native/ring.h`: `UU_TEST_RING`.
pub fn ring() -> String {
    let (tid, head, tail) =
        (offset_of!(ThreadBlock, tid), offset_of!(ThreadBlock, head), offset_of!(ThreadBlock, tail));
    format!("{STATES_OFFSET} {DATA_OFFSET} {BLOCKS} {BLOCK_BYTES} {LIVE_THREAD} {tid} {head} {tail}")
}

/// Runs the script and judges each of its samples. `configure` sets what the interpreter needs.
pub fn walk(
    scratch: &Path,
    program: [&OsStr; 2],
    grammar: &Program,
    configure: impl FnOnce(&mut Command),
) -> Result<Walked, String> {
    let prepare = |command: &mut Command| {
        configure(command);
        // Keeps the dynamic linker's own work out.
        command.env("LD_BIND_NOW", "1");
    };
    let recording = uu::record(scratch, EXPLICIT, prepare, &program).expect_code(0);
    // Each part of the script prints the number of samples so far.
    let mut lines = recording.outcome.stdout.lines().rev();
    let sent = lines.find_map(|line| line.split_once(" samples in ")?.0.parse().ok());
    let sent: usize = sent.ok_or_else(|| format!("no number of samples in {:?}", recording.outcome.stdout))?;
    let mut walked = Walked::default();
    let mut known = HashMap::new();
    recording.each_sample(&mut |text| walked.look(grammar, text, &mut known));
    if walked.samples * 100 < sent * 99 {
        return Err(format!("{} samples of {sent} arrived", walked.samples));
    }
    Ok(walked)
}

/// The judgement of a sample.
#[derive(Clone)]
enum Verdict {
    /// It is none of the requested ones.
    Other,
    Doubtful,
    Wrong(String),
    Right(Rc<Stack>, (u32, u32)),
}

impl Walked {
    /// Most samples differ from others in the machine's instruction only, so each kind is judged once.
    fn look(&mut self, grammar: &Program, text: &str, known: &mut HashMap<String, Verdict>) {
        let header = text.split_once(" kind ").map_or("", |(_, kind)| kind.lines().next().unwrap_or_default());
        let leaf = text.lines().nth(1).filter(|line| line.contains("longjmp"));
        let lua = text.lines().filter(|line| line.starts_with("  lua "));
        let kind: String = [header].into_iter().chain(leaf).chain(lua).collect();
        let verdict = known.entry(kind).or_insert_with(|| judge(grammar, text)).clone();
        self.samples += usize::from(!matches!(verdict, Verdict::Other));
        if in_trace(text) {
            self.on_traces.0 += usize::from(!matches!(verdict, Verdict::Other));
            self.on_traces.1 += usize::from(matches!(verdict, Verdict::Doubtful));
        }
        match verdict {
            Verdict::Other => {}
            Verdict::Doubtful => self.doubtful += 1,
            Verdict::Wrong(why) => self.wrong.entry(why).or_insert_with(|| (0, text.to_owned())).0 += 1,
            Verdict::Right(stack, line) => {
                if self.lines.last() != Some(&line) {
                    self.lines.push(line);
                }
                if self.stacks.last() != Some(&*stack) {
                    self.stacks.push(Stack::clone(&stack));
                }
            }
        }
    }
}

/// Whether the innermost native frame is an interpreter's, in code that lies in no object.
fn in_trace(text: &str) -> bool {
    let native = text.lines().find(|line| line.starts_with("  native "));
    native.is_some_and(|line| line.contains(" (?) ") && line.ends_with(" exact interp"))
}

fn judge(grammar: &Program, text: &str) -> Verdict {
    let samples = samples::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let Some(sample) = samples.first().filter(|sample| sample.kind == "explicit") else { return Verdict::Other };
    // glibc describes the last instructions of longjmp as if the jump were complete; while libgcc leaves for a handler,
    // the stack is being switched.
    let in_jump = matches!(sample.frames.first(), Some(Frame::Native { symbol, .. }) if symbol.contains("longjmp"));
    let in_transit = StopReason::from_number(sample.stop) == Some(StopReason::StackInTransit);
    if sample.flags.contains("desync") || (!sample.complete() && in_jump) || in_transit {
        return Verdict::Doubtful;
    }
    let checked = if sample.complete() { grammar.check(sample) } else { Err("it is not whole".into()) };
    match checked {
        Ok(1..) => Verdict::Right(Rc::new(stack(sample)), line(sample)),
        Ok(0) => Verdict::Wrong("there is no Lua frame".into()),
        Err(e) => Verdict::Wrong(e),
    }
}

fn stack(sample: &Sample) -> Stack {
    let first = |frame: &Frame| match frame {
        Frame::Lua { first, file, .. } if file != "builtin" => Some(*first),
        _ => None,
    };
    sample.frames.iter().filter_map(first).collect()
}

fn line(sample: &Sample) -> (u32, u32) {
    let place = |frame: &Frame| match frame {
        Frame::Lua { first, line, file, .. } if file != "builtin" => Some((*first, *line)),
        _ => None,
    };
    sample.frames.iter().find_map(place).unwrap_or_default()
}

/// Reads what a hook saw; equal stacks in a row count once.
pub fn read_trace(text: &str) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = text
        .lines()
        .map(|line| line.split_whitespace().map(|number| number.parse().expect("a line number")).collect())
        .collect();
    stacks.dedup();
    stacks
}

/// Compares the stacks that were sampled with those that the runtime went through.
pub fn compare(grammar: &Program, expected: &[Stack], got: &[Stack]) -> Result<(), String> {
    let (mut want, mut have) = (expected.iter().peekable(), got.iter().enumerate().peekable());
    while let Some((at, stack)) = have.next() {
        let next = want.next();
        if next == Some(stack) {
            continue;
        }
        let names = |stack: &[u32]| stack.iter().map(|first| grammar.name(*first)).collect::<Vec<_>>().join(" < ");
        let show = |stack: Option<&Stack>| stack.map_or("nothing more".to_owned(), |stack| names(stack));
        return Err(format!(
            "stack {at} is {}, expected {}; before it {}, after it {} (expected {})",
            names(stack),
            show(next),
            show(at.checked_sub(1).and_then(|before| got.get(before))),
            show(have.peek().map(|(_, stack)| *stack)),
            show(want.peek().copied()),
        ));
    }
    match want.next() {
        None => Ok(()),
        Some(_) => Err(format!("{} stacks, expected {}", got.len(), expected.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_too_many_or_too_few_is_reported() {
        let grammar = Program::read("local function f()\nend\nf() --> f\n");
        let trace = read_trace("0\n1 0\n1 0\n0\n");
        assert_eq!(trace, [vec![0], vec![1, 0], vec![0]]);
        assert_eq!(compare(&grammar, &trace, &trace), Ok(()));
        for wrong in [&trace[..2], &trace[1..], &[vec![0], vec![0, 1], vec![0]], &[vec![0], vec![0]]] {
            assert!(compare(&grammar, &trace, wrong).is_err(), "{wrong:?}");
        }
    }
}
