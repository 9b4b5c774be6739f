//! What uu asks of the world is asked at one place: the time, which whatever is preloaded into uu may falsify, and what
//! `/proc` shows of a process, whose main thread may have ended.

/// Rooms, by the beginnings of their files' paths, that run in uu.
const ROOMS: &[&str] = &[
    "cli/src/",
    "ffi/setup/src/",
    "profiler/core-files/",
    "profiler/inject/injector/",
    "profiler/offline/",
    "profiler/push/",
    "profiler/recorder/src/",
    "profiler/recording/src/",
    "profiler/remote/",
    "profiler/remote-sampler/",
    "profiler/report/src/",
    "profiler/symbolize/src/",
    "profiler/waits/",
    "python-unwinder/analyse/src/",
    "setup/",
];
/// The place for each kind.
const CLOCK: &str = "setup/clock/";
const PROCESS: &str = "setup/elf/src/process.rs";

/// What reads the standard library's clock, or waits by it.
const CLOCKS: [&str; 4] = ["SystemTime", "thread::sleep", "park_timeout", "Condvar"];
/// What a main thread that has ended does not have. Its `stat`, `status`, `comm` and `task` are its own.
const OF_MEMORY: [&str; 11] =
    ["maps", "map_files", "exe", "cwd", "root", "mem", "auxv", "environ", "cmdline", "statm", "fd"];

/// The lines of a file, without its tests, that go past these places.
pub fn violations(path: &str, text: &str) -> Vec<String> {
    if !ROOMS.iter().any(|room| path.starts_with(room)) || path.contains("/tests") {
        return Vec::new();
    }
    let code = text.split("\n#[cfg(test)]\n").next().unwrap_or(text);
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let wrong = lines.filter_map(|(n, line)| {
        let is_clock = line.contains("std::time") && line.contains("Instant");
        let asks_time = !path.starts_with(CLOCK) && (is_clock || CLOCKS.iter().any(|clock| line.contains(clock)));
        // This process is uu, whose main thread lives.
        let asks_process =
            path != PROCESS && !line.contains("process::id()") && OF_MEMORY.iter().any(|name| asks(line, name));
        let instead = match (asks_time, asks_process) {
            (true, _) => "uunwind_clock",
            (_, true) => "uunwind_elf::process",
            _ => return None,
        };
        Some(format!("{path}:{}: ask {instead}: {}", n + 1, line.trim()))
    });
    wrong.collect()
}

/// Whether a line makes the path of such a file of a process.
fn asks(line: &str, name: &str) -> bool {
    let made = ["{pid}", "{}", "{tid}"].map(|id| format!("/proc/{id}/{name}"));
    made.iter().any(|path| {
        line.match_indices(path).any(|(at, _)| {
            let after = line[at + path.len()..].chars().next();
            !after.is_some_and(|next| next.is_alphanumeric() || next == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_past_is_found() {
        for bad in [
            "use std::time::{Duration, Instant};",
            "let now = std::time::Instant::now();",
            "std::thread::sleep(PAUSE);",
            "File::open(format!(\"/proc/{pid}/maps\"))",
            "format!(\"/proc/{}/exe\", pid)",
            "PathBuf::from(format!(\"/proc/{pid}/map_files/{a:x}-{b:x}\"))",
        ] {
            assert_eq!(violations("profiler/remote/src/a.rs", &format!("fine\n{bad}\n")).len(), 1, "{bad}");
            assert_eq!(violations("tests/tests/a.rs", bad).len(), 0, "another room");
        }
    }

    #[test]
    fn what_is_the_main_threads_own_passes() {
        let fine = "use std::time::Duration;\nuse uunwind_clock::Instant;\n// /proc/{pid}/maps\n\
                    format!(\"/proc/{pid}/status\")\nformat!(\"/proc/{pid}/task/{tid}/comm\")\n\
                    format!(\"/proc/{pid}/execs\")\n#[cfg(test)]\nmod tests { thread::sleep }\n";
        assert_eq!(violations("cli/src/a.rs", fine), [""; 0]);
        assert_eq!(violations(PROCESS, "format!(\"/proc/{pid}/maps\")"), [""; 0]);
    }
}
