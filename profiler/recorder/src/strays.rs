//! Recorded processes that became another program without us: exec with a scrubbed environment, a static program, another
//! user. They are named and counted, since their CPU time is in no sample.

use std::collections::BTreeMap;

/// Strays seen so far.
#[derive(Default)]
pub struct Strays {
    by_name: BTreeMap<String, u32>,
}

/// What is remembered of one process.
#[derive(Default)]
pub struct Suspect {
    looks: u8,
}

/// A new program's constructor claims its block within moments; so many looks give it time.
const PATIENCE: u8 = 3;

impl Strays {
    /// Looks at a live process that was recorded as `exe`, and has claimed no other block since.
    pub fn look(&mut self, suspect: &mut Suspect, pid: u32, exe: &[u8]) {
        if exe.is_empty() || suspect.looks > PATIENCE {
            return;
        }
        let Ok(now) = std::fs::read_link(format!("/proc/{pid}/exe")) else { return };
        if now.as_os_str().as_encoded_bytes() == exe {
            suspect.looks = 0;
            return;
        }
        suspect.looks += 1;
        if suspect.looks > PATIENCE {
            *self.by_name.entry(now.to_string_lossy().into_owned()).or_default() += 1;
        }
    }

    /// One line for people on each program.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.by_name.iter().map(|(name, count)| {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            format!(
                "{name} was not recorded ({times}): a recorded process called exec without LD_PRELOAD, or with a program \
                 that cannot be preloaded (static, set-uid)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_stays_another_program_is_named_once() {
        let (mut strays, mut suspect) = (Strays::default(), Suspect::default());
        let own = std::fs::read_link("/proc/self/exe").expect("own executable");
        for _ in 0..10 {
            strays.look(&mut suspect, std::process::id(), own.as_os_str().as_encoded_bytes());
        }
        assert_eq!(strays.notes().count(), 0);
        for _ in 0..10 {
            strays.look(&mut suspect, std::process::id(), b"/another/program");
        }
        let notes: Vec<String> = strays.notes().collect();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains(&*own.to_string_lossy()) && notes[0].contains("once"), "{notes:?}");
    }
}
