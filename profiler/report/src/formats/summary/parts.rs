//! Time by process and by thread, where there are several.

use super::super::printable;
use super::table::{Amount, Printer, Row, ROWS};
use crate::formats::threads;
use crate::stacks::Profile;
use std::collections::{BTreeMap, HashMap, HashSet};
use uunwind_recording::Recording;

/// Share of all time that the first process has at most where the others are what was run, in percent.
const SCRIPT: f64 = 50.0;
/// Different command lines from which on programs are counted by their names.
const COMMANDS: usize = 15;

/// A part of the whole, of one name: ids of threads or processes, and their cost.
type Part = (HashSet<u32>, Amount);
type Parts = HashMap<String, Part>;

/// The programs of a recording whose commands are what took the time, such as a shell script's and a build's.
pub struct Programs {
    /// By index of the thread.
    names: Vec<String>,
}

impl Programs {
    /// `None`: the program did its work itself, or in processes of one program.
    pub fn new(recording: &Recording, profile: &Profile) -> Option<Programs> {
        let name = |thread: &uunwind_recording::Thread| file_name(recording, thread.process);
        let names: Vec<String> = recording.threads.iter().map(name).collect();
        let (mut all, mut first, mut several) = (0u64, 0u64, HashSet::new());
        let pid = recording.processes.first()?.pid;
        for stack in &profile.stacks {
            all = all.saturating_add(stack.weight);
            let thread = recording.threads.get(stack.thread as usize);
            let is_first = thread.is_some_and(|thread| threads::pid(recording, thread.process) == pid);
            first = first.saturating_add(if is_first { stack.weight } else { 0 });
            several.extend(names.get(stack.thread as usize));
        }
        let is_script = several.len() > 1 && super::percent(first, all) <= SCRIPT;
        is_script.then_some(Programs { names })
    }

    /// The program of a thread.
    pub fn of(&self, thread: u32) -> Option<&str> {
        self.names.get(thread as usize).map(String::as_str)
    }
}

/// The file name of a process's program, also of one that has a title.
fn file_name(recording: &Recording, process: u32) -> String {
    let titled = recording.processes.get(process as usize).filter(|process| process.title().is_some());
    if let Some(path) = titled.map(|process| String::from_utf8_lossy(&process.exe)) {
        return printable(path.rsplit('/').next().unwrap_or_default());
    }
    let name = threads::program(recording, process);
    name.split(' ').next().unwrap_or_default().to_owned()
}

/// Merges those whose names differ only in numbers, such as a server's threads of a request each.
fn without_numbers(parts: Parts) -> Parts {
    merged(parts, |name| {
        let mut pattern = String::with_capacity(name.len());
        for c in name.chars() {
            match c.is_ascii_digit() {
                true if pattern.ends_with('*') => {}
                true => pattern.push('*'),
                false => pattern.push(c),
            }
        }
        pattern
    })
}

/// Merges those with the same pattern; one alone keeps its name.
fn merged(parts: Parts, pattern: impl Fn(&str) -> String) -> Parts {
    let mut alike: BTreeMap<String, Vec<(String, Part)>> = BTreeMap::new();
    for (name, part) in parts {
        alike.entry(pattern(&name)).or_default().push((name, part));
    }
    let merged = |(pattern, mut parts): (String, Vec<(String, Part)>)| match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            let mut sum = Part::default();
            for (_, (ids, amount)) in parts.into_iter().chain(last) {
                sum.0.extend(ids);
                super::table::add(&mut sum.1, amount);
            }
            (pattern, sum)
        }
    };
    alike.into_iter().map(merged).collect()
}

/// Processes by their command lines or programs, and threads by their names. Each is empty where there is one.
pub fn tables(recording: &Recording, profile: &Profile, printer: &Printer<'_>) -> [Option<String>; 2] {
    let mut of_thread: HashMap<u32, Amount> = HashMap::new();
    for stack in &profile.stacks {
        super::table::add(of_thread.entry(stack.thread).or_default(), (stack.weight, stack.samples));
    }
    let what = if profile.held.is_some() { "Memory" } else { "Time" };
    let (mut processes, mut threads) = (Parts::new(), Parts::new());
    for (index, amount) in of_thread {
        let Some(thread) = recording.threads.get(index as usize) else { continue };
        let program = threads::program(recording, thread.process);
        let name = if thread.name.is_empty() { "?" } else { &thread.name };
        // A process that becomes another program keeps its pid, and its first thread.
        let pid = threads::pid(recording, thread.process);
        for (parts, name, id) in [(&mut processes, program, pid), (&mut threads, name.to_owned(), thread.tid)] {
            let part = parts.entry(name).or_default();
            part.0.insert(id);
            super::table::add(&mut part.1, amount);
        }
    }
    if threads.len() > ROWS {
        threads = without_numbers(threads);
    }
    if processes.len() > COMMANDS {
        processes = merged(processes, |name| name.split(' ').next().unwrap_or_default().to_owned());
    }
    [("process", "processes", processes), ("thread", "threads", threads)].map(|(one, many, parts)| {
        let row = |(name, (ids, amount)): (String, Part)| {
            let name = if ids.len() == 1 { name } else { format!("{name} ({} {many})", ids.len()) };
            Row { name, amount, ..Row::default() }
        };
        let several = parts.len() > 1;
        several.then(|| printer.table(&format!("{what} by {one}"), parts.into_iter().map(row).collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::PLAIN;
    use super::*;
    use crate::stacks::{Line, Stack};
    use uunwind_recording::{Process, Thread};

    fn line(function: &str) -> Line {
        Line::marker(function.to_owned())
    }

    fn stack(lines: &[u32], weight: u64) -> Stack {
        Stack { thread: 0, lines: lines.into(), labels: 0, samples: 1, weight }
    }

    fn render(recording: &Recording, profile: &Profile, style: super::super::Style) -> String {
        let printer = Printer::new(recording, profile, &profile.lines, style);
        tables(recording, profile, &printer).into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn processes_have_their_command_lines() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let process =
            |pid, text| Process { pid, exe: b"/usr/lib/cc1".to_vec(), command: words(text), ..Process::default() };
        let thread = |process| Thread { process, tid: 7 + process, name: "cc1".to_owned() };
        let recording = Recording {
            processes: vec![
                process(1, "/usr/lib/cc1 a.c"),
                process(2, "/usr/lib/cc1 b.c"),
                process(3, "/usr/lib/cc1 b.c"),
            ],
            threads: (0..3).map(thread).collect(),
            ..Recording::default()
        };
        let stack = |thread, weight| Stack { thread, ..stack(&[0], weight) };
        let stacks = vec![stack(0, 50), stack(1, 25), stack(2, 25)];
        let profile = Profile { lines: vec![line("work")], stacks, ..Profile::default() };
        let text = render(&recording, &profile, PLAIN);
        let table = text.split_once("Time by process\n").expect("a table").1;
        assert!(table.contains("50.0 %") && table.contains("2  cc1 b.c (2 processes)"), "{text}");
        assert!(table.contains("1  cc1 a.c\n") && !text.contains("Time by thread"), "{text}");
    }

    /// Servers write what they do over their command lines, and clear the rest of it.
    #[test]
    fn processes_have_their_titles() {
        let process = |pid, command: &[&str]| Process {
            pid,
            exe: b"/usr/sbin/nginx".to_vec(),
            command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            ..Process::default()
        };
        let processes = vec![
            process(1, &["nginx: master process (/etc/nginx.conf)  ", "", ""]),
            process(2, &["nginx: worker process", "", ""]),
            process(3, &["/usr/sbin/nginx", "-F", "", ""]),
        ];
        let thread = |process| Thread { process, tid: 7 + process, name: "nginx".to_owned() };
        let recording = Recording { processes, threads: (0..3).map(thread).collect(), ..Recording::default() };
        let names = [0, 1, 2].map(|process| threads::program(&recording, process));
        assert_eq!(names, ["nginx: master process (/etc/nginx.conf)", "nginx: worker process", "nginx -F"]);
        assert!((0..3).all(|process| file_name(&recording, process) == "nginx"));
        // A path with a space in it is no title.
        let spaced = Process { exe: b"/opt/My App/x".to_vec(), ..process(4, &["/opt/My App/x"]) };
        assert_eq!(spaced.title(), None);
    }

    #[test]
    fn many_threads_whose_names_differ_in_numbers_are_one_row() {
        let table = |count: u32| {
            let thread = |n| Thread { process: 0, tid: 7 + n, name: format!("Thread-{n} (answer)") };
            let mut threads: Vec<Thread> = (0..count).map(thread).collect();
            threads.push(Thread { process: 0, tid: 6, name: "main2".to_owned() });
            let stacks = (0..=count).map(|thread| Stack { thread, ..stack(&[0], 1) }).collect();
            let mut recording = Recording { processes: vec![Process::default()], threads, ..Recording::default() };
            recording.settings.rate = 100;
            let profile = Profile { lines: vec![line("work")], stacks, ..Profile::default() };
            let text = render(&recording, &profile, PLAIN);
            text.split_once("Time by thread\n").expect("a table").1.to_owned()
        };
        let many = table(99);
        assert!(many.contains("  99.0 %    0.99s       99  Thread-* (answer) (99 threads)\n"), "{many}");
        assert!(many.contains("        1  main2\n"), "{many}");
        // A few workers are of interest each by itself.
        let few = table(4);
        assert!(few.contains("  Thread-0 (answer)\n") && few.contains("  Thread-3 (answer)\n"), "{few}");
    }

    /// A script's commands are what took its time: they come first, by their programs if they are many.
    #[test]
    fn the_commands_of_a_script_are_its_parts() {
        let words = |text: String| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let process = |pid: u32, text| Process { pid, command: words(text), ..Process::default() };
        let mut processes = vec![process(1, "/bin/sh x.sh".to_owned())];
        processes.extend((2..42).map(|pid| process(pid, format!("/bin/grep -c {pid}"))));
        processes.push(process(42, "sort -n".to_owned()));
        let thread = |process: u32| Thread { process, tid: process + 1, name: String::new() };
        let threads = (0..processes.len() as u32).map(thread).collect();
        let recording = Recording { processes, threads, ..Recording::default() };
        let profile = |of_shell: u64| {
            let mut stacks: Vec<Stack> = (1..42).map(|thread| Stack { thread, ..stack(&[0], 1) }).collect();
            stacks.push(Stack { thread: 0, ..stack(&[0], of_shell) });
            Profile { lines: vec![line("work")], stacks, ..Profile::default() }
        };
        let programs = Programs::new(&recording, &profile(9)).expect("a script");
        assert_eq!((programs.of(0), programs.of(7), programs.of(41)), (Some("sh"), Some("grep"), Some("sort")));
        assert!(Programs::new(&recording, &profile(900)).is_none(), "it works itself");
        let text = render(&recording, &profile(9), PLAIN);
        assert!(text.contains("40  grep (40 processes)\n") && text.contains("1  sort -n\n"), "{text}");
        let whole = super::super::render(&recording, &profile(9), &[], PLAIN);
        let [commands, tree] = ["Time by process", "Where the time is"].map(|title| whole.find(title).expect(title));
        assert!(commands < tree && whole[tree..].contains("grep > work\n"), "{whole}");
        assert!(whole.contains("  processes  42, of one thread each; 0 of them sampled\n"), "{whole}");
    }
}
