//! How many files may be kept open.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Raises the limit of open files as far as it may be raised. Returns the number that each of these may keep open:
/// clocks of threads, files of objects, and descriptors of processes. As many are left for all else.
pub fn share() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Otherwise, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize / 4)
}
