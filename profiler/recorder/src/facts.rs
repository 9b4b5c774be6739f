//! The recorder's side of the facts memfd: its only writer.

use crate::session::SharedMemory;
use crate::tables::Tables;
use std::collections::HashSet;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use uunwind_ring::facts::{
    switched, FactsEntry, FactsHeader, DATA_OFFSET, ENTRIES, FACTS_BYTES, FACTS_MAGIC, IS_OVER, TABLES_OFFSET,
};

/// Offset of the table's entries in the memory, in bytes.
const ENTRIES_OFFSET: usize = 64;

/// A plugin's claim of an object.
pub struct Claim {
    /// The object's key.
    pub key: u64,
    /// The plugin's name, padded.
    pub plugin: [u8; 16],
    /// The plugin's facts about the object.
    pub facts: Vec<u8>,
}

/// Publishes facts and rule tables to all targets.
pub struct FactsPublisher {
    memory: Arc<SharedMemory>,
    /// A page of it, with a mutex that this thread holds.
    _held: Held,
    tables: Tables,
    published: HashSet<u64>,
    claims: Vec<Claim>,
    next: usize,
}

/// The first page of the memory, mapped once more, with a mutex in it that the thread holds that has mapped it.
struct Held(*mut u8);

// SAFETY: the page is used by `drop` alone, which does nothing in another thread.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Drop for Held {
    /// Releases the mutex, and unmaps the page, which would keep all of the memory. In another thread than the one that
    /// holds the mutex, both stay: that thread's list of robust mutexes points into the page.
    fn drop(&mut self) {
        // SAFETY: the word lies inside the page, and is only ever looked at as an atomic. The mutex lives, and checks
        // its owner; once it is released, nothing points into the page.
        unsafe {
            // Whoever still has the memory would wait in vain for the mutex to say so.
            (*self.0.add(offset_of!(FactsHeader, stopped)).cast::<AtomicU32>()).fetch_or(IS_OVER, Ordering::Release);
            let mutex = self.0.add(offset_of!(FactsHeader, recorder)).cast::<libc::pthread_mutex_t>();
            if libc::pthread_mutex_unlock(mutex) == 0 {
                libc::munmap(self.0.cast(), PAGE);
            }
        }
    }
}

/// Bytes of that mapping.
const PAGE: usize = 4096;

/// Locks the [robust mutex](https://man7.org/linux/man-pages/man3/pthread_mutexattr_setrobust.3.html) of the header for
/// as long as this thread lives. When the recorder dies, even by SIGKILL, the kernel marks the mutex, which targets
/// read.
fn hold(memory: &SharedMemory) -> io::Result<Held> {
    const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= 48);
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) };
    // A separate mapping, which stays as long as the thread's list of robust mutexes points into it.
    let page = memory.map_again(PAGE)?;
    // SAFETY: the mutex lies inside the page, 16-aligned. No other process has it mapped yet, unless one that made the
    // file itself means harm: all that it can do is to make the call fail, which does not wait. The attributes are
    // initialised before they are used, and destroyed once.
    unsafe {
        let mutex = page.add(offset_of!(FactsHeader, recorder)).cast::<libc::pthread_mutex_t>();
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        check(libc::pthread_mutexattr_init(&mut attributes))?;
        let made = check(libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST))
            .and_then(|()| check(libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED)))
            .and_then(|()| check(libc::pthread_mutex_init(mutex, &attributes)));
        libc::pthread_mutexattr_destroy(&mut attributes);
        made?;
        check(libc::pthread_mutex_trylock(mutex))?;
    }
    Ok(Held(page))
}

/// The memory or its table has no space for more.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl FactsPublisher {
    /// Creates the memfd, with this number of bytes for rule tables (whole pages), and writes its header.
    pub fn create(tables: usize) -> io::Result<FactsPublisher> {
        FactsPublisher::in_memory(SharedMemory::create(c"uu-facts", TABLES_OFFSET + tables)?)
    }

    /// As [`FactsPublisher::create`], in an empty memfd that another process may have made.
    pub fn in_file(fd: OwnedFd, tables: usize) -> io::Result<FactsPublisher> {
        FactsPublisher::in_memory(SharedMemory::in_file(fd, TABLES_OFFSET + tables)?)
    }

    fn in_memory(memory: SharedMemory) -> io::Result<FactsPublisher> {
        let held = hold(&memory)?;
        memory.seal_against_writers();
        if let Some(magic) = memory.word(offset_of!(FactsHeader, magic)) {
            magic.store(FACTS_MAGIC, Ordering::Release);
        }
        let memory = Arc::new(memory);
        Ok(FactsPublisher {
            tables: Tables::new(memory.clone()),
            memory,
            _held: held,
            published: HashSet::new(),
            claims: Vec::new(),
            next: DATA_OFFSET,
        })
    }

    /// Sets the word by which every target finds out that the recording is over.
    pub fn stop(&self) {
        if let Some(stopped) = self.memory.half(offset_of!(FactsHeader, stopped)) {
            stopped.fetch_or(IS_OVER, Ordering::Release);
        }
    }

    /// Pauses the recording in every target, or resumes it.
    pub fn switch(&self, paused: bool) {
        if let Some(stopped) = self.memory.half(offset_of!(FactsHeader, stopped)) {
            // There is no other writer.
            stopped.store(switched(stopped.load(Ordering::Relaxed), paused), Ordering::Release);
        }
    }

    /// Number of switches so far: see [`FactsHeader::stopped`].
    pub fn switches(&self) -> u32 {
        self.memory.half(offset_of!(FactsHeader, stopped)).map_or(0, |stopped| stopped.load(Ordering::Relaxed) >> 1)
    }

    /// The descriptor's number, for the environment of targets.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// The memory's file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// Whether facts for `key` were published.
    pub fn has(&self, key: u64) -> bool {
        self.published.contains(&key)
    }

    /// The claims that were published.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// Publishes facts for a key, once. No plugin and no bytes: the object was analysed, and no plugin claims it.
    pub fn publish(&mut self, key: u64, plugin: [u8; 16], bytes: &[u8]) -> Result<(), Full> {
        if key == 0 || !self.published.insert(key) {
            return Ok(());
        }
        let offset = self.next;
        let len = bytes.len();
        let at = self.memory.at(offset, len).filter(|_| offset + len <= FACTS_BYTES).ok_or(Full)?;
        // One entry stays free, so that every reader's probe sequence ends.
        if self.published.len() >= ENTRIES {
            return Err(Full);
        }
        // SAFETY: `len` bytes inside the memory, in a part to which no entry points yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, len) };
        self.next = (offset + len).next_multiple_of(16);
        let entry = self.free_entry(key).ok_or(Full)?;
        let plugin_at = self.memory.at(entry + offset_of!(FactsEntry, plugin), 16).ok_or(Full)?;
        // SAFETY: 16 bytes inside an entry that readers ignore while its key is 0.
        unsafe { std::ptr::copy_nonoverlapping(plugin.as_ptr(), plugin_at, 16) };
        let half = |field| self.memory.half(entry + field).ok_or(Full);
        half(offset_of!(FactsEntry, offset))?.store(offset as u32, Ordering::Relaxed);
        half(offset_of!(FactsEntry, len))?.store(len as u32, Ordering::Relaxed);
        self.memory.word(entry + offset_of!(FactsEntry, key)).ok_or(Full)?.store(key, Ordering::Release);
        self.memory.half(offset_of!(FactsHeader, count)).ok_or(Full)?.fetch_add(1, Ordering::Release);
        if len > 0 {
            self.claims.push(Claim { key, plugin, facts: bytes.to_vec() });
        }
        Ok(())
    }

    /// Whether a rule table was published for `key`.
    pub fn has_table(&self, key: u64) -> bool {
        self.tables.has(key)
    }

    /// Publishes a rule table for a key, once.
    pub fn publish_table(&self, key: u64, table: &[u8]) -> Result<(), Full> {
        self.tables.publish(key, table)
    }

    /// The memory, for the rules made from code, which lie before the tables.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The rule tables, which other threads publish, too.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Offset of the first free entry in the key's probe sequence.
    fn free_entry(&self, key: u64) -> Option<usize> {
        let entries = (0..ENTRIES).map(|probe| {
            let index = (key as usize).wrapping_add(probe) % ENTRIES;
            ENTRIES_OFFSET + index * size_of::<FactsEntry>()
        });
        let free = |at: &usize| self.memory.word(*at).is_some_and(|word| word.load(Ordering::Acquire) == 0);
        entries.into_iter().find(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_ring::facts::FactsView;
    use uunwind_ring::tables::{TablesView, ENTRIES as TABLES, TABLES_BYTES};

    #[test]
    fn a_target_finds_what_was_published() {
        let mut facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        let base = facts.memory.at(0, FACTS_BYTES).expect("whole memory");
        // SAFETY: FACTS_BYTES readable bytes, mapped until the end of the test.
        let view = unsafe { FactsView::new(base) }.expect("magic");
        // Two keys with the same probe sequence, and an object that no plugin claims.
        let keys = [5, 5 + ENTRIES as u64, 77];
        assert_eq!(facts.publish(keys[0], *b"python\0\0\0\0\0\0\0\0\0\0", b"first"), Ok(()));
        assert_eq!(facts.publish(keys[1], *b"lua\0\0\0\0\0\0\0\0\0\0\0\0\0", b"second fact"), Ok(()));
        assert_eq!(facts.publish(keys[2], [0; 16], b""), Ok(()));
        assert_eq!(facts.publish(keys[0], [0; 16], b"again"), Ok(()), "published once");
        assert_eq!(view.count(), 3);
        let found = view.find(keys[1]).expect("published");
        assert_eq!((found.bytes, &found.plugin[..4]), (&b"second fact"[..], &b"lua\0"[..]));
        assert_eq!(view.find(keys[0]).expect("published").bytes, b"first");
        assert!(view.find(keys[2]).expect("published").bytes.is_empty());
        assert!(view.find(6).is_none());
    }

    #[test]
    fn each_switch_is_seen_and_the_last_one_holds() {
        let facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        let base = facts.memory.at(0, FACTS_BYTES).expect("whole memory");
        // SAFETY: FACTS_BYTES readable bytes, mapped until the end of the test.
        let view = unsafe { FactsView::new(base) }.expect("magic");
        let mut before = view.switches();
        for paused in [true, true, false, false, true] {
            facts.switch(paused);
            let now = view.switches();
            assert!(now > before && (now & 1 == 1) == paused && !view.is_over());
            before = now;
        }
        facts.stop();
        assert!(view.is_over() && view.switches() == before);
        facts.switch(false);
        assert!(view.is_over());
    }

    #[test]
    fn the_memory_goes_with_its_publisher() {
        let mapped = |inode| {
            let own = uunwind_elf::maps::of(std::process::id()).expect("mappings");
            own.filter(|mapping| mapping.inode == inode).count()
        };
        let facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        let (inode, file) = (facts.memory.inode(), facts.file().try_clone_to_owned().expect("a file"));
        assert!(mapped(inode) > 0);
        drop(facts);
        assert_eq!(mapped(inode), 0);
        let mut stopped = [0; 4];
        let at = offset_of!(FactsHeader, stopped) as u64;
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::from(file), &mut stopped, at).expect("it is there");
        assert_eq!(u32::from_le_bytes(stopped), IS_OVER);
        // The thread that holds the mutex still has it in its list.
        let facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        let inode = facts.memory.inode();
        std::thread::spawn(move || drop(facts)).join().expect("no panic");
        assert_eq!(mapped(inode), 1);
    }

    #[test]
    fn tables_follow_the_facts() {
        let mut facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        let base = facts.memory.at(0, TABLES_OFFSET + TABLES_BYTES).expect("whole memory");
        // SAFETY: mapped until the end of the test.
        let view = unsafe { TablesView::new(base.add(TABLES_OFFSET), TABLES_BYTES) };
        assert_eq!(facts.publish_table(9, b"a table"), Ok(()));
        assert_eq!(facts.publish_table(9 + TABLES as u64, b"another"), Ok(()), "on the same probe");
        assert_eq!(facts.publish(9, [0; 16], b"facts"), Ok(()), "under the same key");
        assert_eq!((view.find(9), view.find(9 + TABLES as u64)), (Some(&b"a table"[..]), Some(&b"another"[..])));
        assert_eq!(view.find(10), None);
        assert_eq!(facts.publish_table(10, &vec![1; TABLES_BYTES]), Err(Full));
        assert_eq!(facts.publish_table(11, b"still room for small ones"), Ok(()));
    }

    #[test]
    fn a_full_table_is_reported() {
        let mut facts = FactsPublisher::create(TABLES_BYTES).expect("memfd");
        assert_eq!(facts.publish(1, [0; 16], &vec![0; FACTS_BYTES]), Err(Full));
        for key in 2..ENTRIES as u64 {
            assert_eq!(facts.publish(key, [0; 16], b""), Ok(()), "{key}");
        }
        assert_eq!(facts.publish(1 << 40, [0; 16], b""), Err(Full));
    }
}
