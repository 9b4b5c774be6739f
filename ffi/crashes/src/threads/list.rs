//! The threads of the process, as `/proc/self/task` lists them.

use crate::system::File;

/// Bytes of directory entries that are read at a time.
const BYTES: usize = 512;

/// Reads the list, part by part. Threads that begin or end meanwhile may be missing.
#[derive(Debug)]
pub struct List {
    folder: File,
}

impl List {
    /// `None`: there is no /proc. Async-signal-safe.
    pub fn open() -> Option<List> {
        Some(List { folder: File::open(c"/proc/self/task")? })
    }

    /// Passes the next thread ids to `each`. False: there are no more.
    pub fn next(&mut self, each: &mut dyn FnMut(u32)) -> bool {
        let mut buffer = [0u64; BYTES / 8];
        // SAFETY: words are bytes, too.
        let bytes = unsafe { core::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), BYTES) };
        let entries = self.folder.entries(bytes);
        ids(entries, each);
        !entries.is_empty()
    }
}

/// Passes the ids among these entries of the folder to `each`, up to the first entry that is damaged.
pub fn ids(entries: &[u8], each: &mut dyn FnMut(u32)) {
    let mut rest = entries;
    while let Some((name, after)) = entry(rest) {
        rest = after;
        if let Some(tid) = number(name) {
            each(tid);
        }
    }
}

/// The first entry's name, and what follows it (`struct linux_dirent64`,
/// [getdents(2)](https://man7.org/linux/man-pages/man2/getdents.2.html): the length is at 16, the name at 19).
fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u16::from_le_bytes([*bytes.get(16)?, *bytes.get(17)?]) as usize;
    let (this, after) = bytes.split_at_checked(len)?;
    let name = this.get(19..)?;
    Some((name.split(|byte| *byte == 0).next()?, after))
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_listed_once() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let (say, said) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..100)
            .map(|_| {
                let (wait, say) = (wait.clone(), say.clone());
                std::thread::spawn(move || {
                    say.send(uunwind_core::syscall::gettid()).expect("a receiver");
                    let _ = wait.lock().map(|wait| wait.recv());
                })
            })
            .collect();
        let mut own: Vec<u32> = said.iter().take(100).collect();
        let mut listed = Vec::new();
        let mut list = List::open().expect("/proc");
        while list.next(&mut |tid| listed.push(tid)) {}
        drop(stop);
        for thread in threads {
            thread.join().expect("no panic");
        }
        own.sort_unstable();
        listed.sort_unstable();
        assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "{listed:?}");
        assert!(own.iter().all(|tid| listed.binary_search(tid).is_ok()), "{own:?} {listed:?}");
    }

    #[test]
    fn damaged_entries_end_the_list() {
        assert_eq!(entry(&[0; 8]), None);
        let mut bytes = [0u8; 24];
        bytes[16] = 200;
        assert_eq!(entry(&bytes), None, "longer than what was read");
        bytes[16] = 0;
        assert_eq!(entry(&bytes), None, "no end of this list would come");
        assert_eq!((number(b".."), number(b"12"), number(b"99999999999")), (None, Some(12), None));
    }
}
