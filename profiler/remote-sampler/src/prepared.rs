//! What is known of a process before it is sampled; or why it cannot be.

use crate::target::has_ended;
use std::os::fd::OwnedFd;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::process;
use uunwind_recorder::machine::Stat;
use uunwind_remote::dump::exe;
use uunwind_remote::memory::Memory;
use uunwind_remote::objects::{code_of, Code, Objects};
use uunwind_remote::plugins::Plugins;
use uunwind_remote::refusal::{is_gone, is_narrow, refused, DumpError};
use uunwind_tables_build::Cache;

/// How long exec may take to make a new image.
const LONGEST_EXEC: Duration = Duration::from_secs(1);

/// A process that can be sampled.
pub struct Prepared {
    /// The code that it has mapped; none: its first thread has ended, and the others live on.
    pub code: Code,
    /// Its image.
    pub image: Image,
    /// The objects of that.
    pub objects: Objects,
}

/// Why there is nothing to sample.
pub enum Unprepared {
    /// The process has ended.
    Ended,
    /// It lives, and cannot be looked at.
    Refused(DumpError),
}

/// Prepares a process. While exec makes a new image, there are parts of it only, which would be taken for an image of
/// their own: then all is looked at again, as long as the process lives, but not for ever.
pub fn prepare(
    pid: u32,
    pidfd: Option<&OwnedFd>,
    cache: &Cache,
    plugins: &mut Plugins,
) -> Result<Prepared, Unprepared> {
    let begun = Instant::now();
    loop {
        let (before, code) = (Image::of(pid), code_of(pid));
        let objects = Objects::prepare(pid, &Memory::of(pid), cache, plugins);
        let (is_narrow, image) = (is_narrow(pid), Image::of(pid));
        let is_late = begun.elapsed() >= LONGEST_EXEC;
        match objects {
            Ok(objects) => {
                let is_whole = !code.is_empty() && image == before && !image.is_being_made();
                if is_whole && is_narrow {
                    return Err(Unprepared::Refused(DumpError::Narrow(pid)));
                }
                if is_whole || is_late {
                    return Ok(Prepared { code, image, objects });
                }
            }
            // To ask why needs a file, too.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                return Err(Unprepared::Refused(DumpError::Unreadable(pid, error)));
            }
            Err(error) if !is_gone(&error) => {
                return Err(match refused(pid, error) {
                    DumpError::NoProcess(_) | DumpError::Zombie(_) => Unprepared::Ended,
                    why => Unprepared::Refused(why),
                });
            }
            Err(_) if is_late => return Err(Unprepared::Ended),
            Err(_) => {}
        }
        if has_ended(pid, pidfd) {
            return Err(Unprepared::Ended);
        }
        uunwind_clock::sleep(Duration::from_millis(1));
    }
}

/// What is the same until a process calls exec: its executable, and where the kernel has put that and the stack.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Image {
    exe: Vec<u8>,
    place: Option<(u64, u64)>,
}

impl Image {
    /// As it is now.
    pub fn of(pid: u32) -> Image {
        // startcode and startstack.
        let place = Stat::in_folder(&process::folder(pid)).and_then(|stat| stat.number(26).zip(stat.number(28)));
        Image { exe: exe(pid), place }
    }

    /// Whether exec is making it. The kernel sets both places last
    /// (<https://github.com/torvalds/linux/blob/v6.1/fs/binfmt_elf.c>, `load_elf_binary`).
    pub fn is_being_made(&self) -> bool {
        self.place.is_some_and(|(code, stack)| code == 0 || stack == 0)
    }
}
