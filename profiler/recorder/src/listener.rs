//! The thread that answers the session's bell: it publishes the cached rule tables of an object that a process is about
//! to load, and of what that object needs, while the process loads them. It waits for no pass over the rings, and a
//! pass does not wait for it.

use crate::analyst::without_signals;
use crate::session::Session;
use crate::tables::Tables;
use rustix::event::{eventfd, EventfdFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use uunwind_analyse::Search;
use uunwind_elf::{key_of, maps, Image};
use uunwind_ring::layout::FIRST_PAGE;
use uunwind_ring::openings::{Announced, Openings, SLOTS};
use uunwind_tables_build::Cache;

/// After each answer the thread rests for this time, so that a process that rings all the time does not keep a CPU
/// busy.
const REST: Duration = Duration::from_millis(1);
/// The thread's nice value, where it may have that.
const HURRIED: i32 = -10;
/// Its slice of CPU time, in ns: the shortest that the kernel gives.
const SLICE: u64 = 100_000;
/// At most this number of openings wait for the recorder's own thread; each is a path.
const MOST_WAITING: usize = 256;
/// Bytes of a process's environment that are read.
const ENVIRONMENT: u64 = 1 << 20;

/// An object that a process is about to load.
#[derive(Debug, PartialEq, Eq)]
pub struct Opening {
    /// Where it can be opened.
    pub file: PathBuf,
    /// The path that the process has it under.
    pub path: Vec<u8>,
}

/// Wakes the recorder's own thread from its [poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html). Its clones
/// wake the same one.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A new one. Errors: those of [eventfd(2)](https://man7.org/linux/man-pages/man2/eventfd.2.html).
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// A descriptor that is readable from a call of [`Waker::wake`] until [`Waker::is_woken`].
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Wakes it.
    pub fn wake(&self) {
        // It fails only when it was woken very often, and is awake.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Whether it was woken since the last call.
    pub fn is_woken(&self) -> bool {
        rustix::io::read(&*self.0, &mut [0; 8]).is_ok()
    }
}

/// The recorder's side of the thread, which ends with this value.
pub struct Listener {
    openings: Receiver<Opening>,
    shared: Arc<Shared>,
}

/// The first page of the session, in a mapping that stays.
struct Shared {
    page: *mut u8,
    is_over: AtomicBool,
}

// SAFETY: the page stays mapped, and all that is used of it are atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn bell(&self) -> &AtomicU32 {
        // SAFETY: the header begins the page, which stays mapped, at an address that is aligned for it.
        unsafe { &(*self.page.cast::<uunwind_ring::layout::SessionHeader>()).bell }
    }

    fn openings(&self) -> Openings<'_> {
        // SAFETY: as above.
        unsafe { Openings::at(self.page) }
    }

    fn ring(&self) {
        self.bell().fetch_add(1, Ordering::Release);
        // SAFETY: a word that stays mapped; the call writes nothing.
        unsafe { libc::syscall(libc::SYS_futex, self.bell().as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Waits until the bell has another count than this.
    fn wait(&self, heard: u32) {
        let no_timeout = std::ptr::null::<libc::timespec>();
        // SAFETY: a word that stays mapped, and no timeout.
        unsafe { libc::syscall(libc::SYS_futex, self.bell().as_ptr(), libc::FUTEX_WAIT, heard, no_timeout) };
    }
}

impl Listener {
    /// Starts the thread. Tables come from the cache only; objects whose table is not there are left to whoever takes
    /// the openings. Errors: there is no memory for it, or no thread (RLIMIT_NPROC); then objects come with the first
    /// samples that meet them.
    pub fn start(session: &Session, tables: Tables, cache: Cache, waker: Waker) -> io::Result<Listener> {
        let shared =
            Arc::new(Shared { page: session.memory().map_again(FIRST_PAGE)?, is_over: AtomicBool::new(false) });
        let (report, openings) = sync_channel(MOST_WAITING);
        let own = shared.clone();
        let work = move || listen(&own, &tables, &cache, &report, &waker);
        without_signals(|| Builder::new().name("uu-listener".to_owned()).spawn(work))?;
        Ok(Listener { openings, shared })
    }

    /// The openings since the last call. Never waits.
    pub fn poll(&self) -> Vec<Opening> {
        self.openings.try_iter().collect()
    }
}

impl Drop for Listener {
    /// Does not wait for the thread: it may be reading from a file system that does not answer.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.ring();
    }
}

fn listen(shared: &Shared, tables: &Tables, cache: &Cache, report: &SyncSender<Opening>, waker: &Waker) {
    hurry();
    let (mut next, mut search) = (0, Search::default());
    loop {
        let heard = shared.bell().load(Ordering::Acquire);
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let (openings, user) = (shared.openings(), rustix::process::geteuid().as_raw());
        let count = openings.count();
        // Older ones were overwritten.
        if count.wrapping_sub(next) > SLOTS as u32 {
            next = count.wrapping_sub(SLOTS as u32);
        }
        while next != count {
            let Some(announced) = openings.get(next) else { break };
            next = next.wrapping_add(1);
            let Some(opening) = place(&announced, user, &search) else { continue };
            let opened = opening.file.clone();
            let found = |opening: Opening| {
                prepare(&opening.file, tables, cache);
                // Where too many wait, the object comes with the first sample that meets it.
                let _ = report.try_send(opening);
            };
            found(opening);
            for file in needs(announced.pid, &opened, &mut search) {
                found(Opening { path: file.as_os_str().as_bytes().to_vec(), file });
            }
        }
        waker.wake();
        uunwind_clock::sleep(REST);
        shared.wait(heard);
    }
}

/// Lets the calling thread run soon after it was woken, also on a busy machine: it works for a moment at a time. By a
/// higher priority where that is allowed, and by short slices where the kernel has them (Linux 6.12; before, it ignores
/// them): [sched_setattr(2)](https://man7.org/linux/man-pages/man2/sched_setattr.2.html).
fn hurry() {
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // SAFETY: plain call; 0 is the calling thread.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    for nice in [own.min(HURRIED), own] {
        let size = size_of::<Attributes>() as u32;
        let policy = libc::SCHED_OTHER as u32;
        let wanted = Attributes { size, policy, flags: 0, nice, priority: 0, runtime: SLICE, deadline: 0, period: 0 };
        // SAFETY: the first version of the structure, of the size that it says.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } == 0 {
            return;
        }
    }
}

/// Where the recorder can open a file that a process opens by this path, or by a name that the loader searches for.
/// `None`: the process is not this user's, so what may be read here is not what it may read; or it is gone; or the
/// name is not found.
fn place(announced: &Announced, user: u32, search: &Search) -> Option<Opening> {
    let (pid, path) = (announced.pid, announced.path.as_bytes());
    let process = PathBuf::from(format!("/proc/{pid}"));
    if std::fs::metadata(&process).ok()?.uid() != user {
        return None;
    }
    let folder = uunwind_elf::process::folder(pid);
    let name = Path::new(OsStr::from_bytes(path));
    let searched = (!path.contains(&b'/')).then(|| {
        if path.is_empty() || !sees_our_files(&folder) {
            return None;
        }
        let (program, caller) = (folder.join("exe"), object_at(pid, announced.caller));
        search.named(name.as_os_str(), &program, caller.as_deref(), library_path(&folder))
    });
    let path = match &searched {
        Some(found) => found.as_deref()?,
        None => name,
    };
    let path =
        if path.is_absolute() { path.to_owned() } else { std::fs::read_link(folder.join("cwd")).ok()?.join(path) };
    // What these lead to for the process is something else for the recorder.
    let own = path.strip_prefix("/proc/self").or(path.strip_prefix("/proc/thread-self"));
    let file = match own {
        Ok(rest) => folder.join(rest),
        Err(_) => folder.join("root").join(path.strip_prefix("/").ok()?),
    };
    Some(Opening { file, path: path.into_os_string().into_encoded_bytes() })
}

/// The file that a process has mapped at this address, by the path that it had then.
fn object_at(pid: u32, address: u64) -> Option<PathBuf> {
    let mut mappings = maps::of(pid).ok()?;
    let mapping = mappings.find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    mapping.name.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(&mapping.name)))
}

/// What an object needs that a process is about to load, without what was searched for in the same places before.
/// Nothing, if the process sees other files than the recorder.
fn needs(pid: u32, opened: &Path, search: &mut Search) -> Vec<PathBuf> {
    let folder = uunwind_elf::process::folder(pid);
    if !sees_our_files(&folder) {
        return Vec::new();
    }
    search.closure(opened, Some(&folder.join("exe")), || library_path(&folder)).split_off(1)
}

/// Whether a process has the recorder's root folder.
fn sees_our_files(process: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(&process.join("root")).is_some_and(|root| Some(root) == identity(Path::new("/")))
}

/// `LD_LIBRARY_PATH` of a process, as its last exec gave it.
fn library_path(process: &Path) -> Option<OsString> {
    let mut environment = Vec::new();
    File::open(process.join("environ")).ok()?.take(ENVIRONMENT).read_to_end(&mut environment).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"LD_LIBRARY_PATH="))?;
    Some(OsStr::from_bytes(value).to_owned())
}

/// Publishes the object's rule table, if it is cached.
fn prepare(file: &Path, tables: &Tables, cache: &Cache) {
    let Ok(image) = Image::open(file) else { return };
    let key = key_of(&image).0;
    if tables.has(key) {
        return;
    }
    if let Some(table) = cache.kept_of(&image) {
        // Where there is no room, the recorder's thread says so.
        let _ = tables.publish(key, &table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactsPublisher;
    use std::process::{Command, Stdio};

    /// What the preloaded object does.
    fn announce(session: &Session, path: &str) {
        announce_of(session, std::process::id(), path);
    }

    fn announce_of(session: &Session, pid: u32, path: &str) {
        let page = session.memory().at(0, FIRST_PAGE).expect("a page");
        // SAFETY: the page lives as long as the session.
        unsafe { Openings::at(page) }.put(pid, 0, path.as_bytes());
        // SAFETY: as above.
        let bell = unsafe { &(*page.cast::<uunwind_ring::layout::SessionHeader>()).bell };
        bell.fetch_add(1, Ordering::Release);
        // SAFETY: a word that is mapped.
        unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    fn until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::sleep(REST);
        }
    }

    #[test]
    fn the_cached_table_of_an_object_is_published_before_it_is_loaded() {
        let (session, facts) = (Session::create(16).expect("memory"), FactsPublisher::create(8 << 20).expect("memory"));
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("tables"));
        let shell = Image::open(Path::new("/bin/sh")).expect("an object");
        let key = key_of(&shell).0;
        let waker = Waker::new().expect("an eventfd");
        let listener =
            Listener::start(&session, facts.tables().clone(), cache.clone(), waker.clone()).expect("a thread");
        // Not cached: it is left to the analyst.
        announce(&session, "/bin/sh");
        until(|| waker.is_woken());
        let found = listener.poll();
        // What it needs comes after it.
        until(|| !found.is_empty() || !listener.poll().is_empty());
        assert!(!facts.has_table(key));
        cache.table(&shell).expect("a table");
        announce(&session, "/bin/sh");
        until(|| facts.has_table(key));
        // Any bytes are survived: no file, one that is no object, a pid that nobody has.
        for path in ["/nonexistent/x", "/etc/passwd", "relative/x", "/"] {
            announce(&session, path);
            until(|| waker.is_woken());
        }
    }

    /// Objects by a name that only a process's LD_LIBRARY_PATH leads to, and what they need.
    #[test]
    fn what_the_loader_searches_for_and_what_that_needs_is_published() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("x.c"), "int f(int n) { return n ? f(n - 1) + n : 0; }").expect("room");
        let link = |name: &str, needed: &[&str]| {
            let mut command = Command::new("gcc");
            command.args(["-O1", "-shared", "-fPIC", "-Wl,--no-as-needed", "-L.", "-o", name, "x.c"]).args(needed);
            // Each has a key of its own, by its build-id.
            command.arg("-Wl,--build-id=sha1").arg(format!("-Wl,-soname,{name}")).current_dir(folder.path());
            assert!(command.status().expect("gcc").success());
        };
        link("libinner.so", &[]);
        link("libmiddle.so", &["-linner"]);
        link("libouter.so", &["-lmiddle"]);
        let (session, facts) = (Session::create(16).expect("memory"), FactsPublisher::create(8 << 20).expect("memory"));
        let cache = Cache::at(at("tables"));
        let keys = ["libinner.so", "libmiddle.so", "libouter.so"].map(|name| {
            let image = Image::open(&at(name)).expect("an object");
            cache.table(&image).expect("a table");
            key_of(&image).0
        });
        let waker = Waker::new().expect("an eventfd");
        let listener = Listener::start(&session, facts.tables().clone(), cache, waker).expect("a thread");
        // It ends when its input does.
        let mut process = Command::new("cat");
        process.env("LD_LIBRARY_PATH", folder.path()).stdin(Stdio::piped());
        let mut process = process.spawn().expect("cat");
        // The kernel lets the parent run on before the new program's environment is there.
        until(|| library_path(&uunwind_elf::process::folder(process.id())).is_some());
        announce_of(&session, process.id(), "libouter.so");
        until(|| keys.iter().all(|key| facts.has_table(*key)));
        // The recorder's own thread hears of them, too, and of what is not cached.
        let mut heard: Vec<Vec<u8>> = Vec::new();
        let is_heard = |heard: &[Vec<u8>], name: &str| heard.iter().any(|path| path.ends_with(name.as_bytes()));
        while !["libinner.so", "libmiddle.so", "libouter.so"].iter().all(|name| is_heard(&heard, name)) {
            heard.extend(listener.poll().into_iter().map(|opening| opening.path));
            std::thread::sleep(REST);
        }
        drop(process.stdin.take());
        let _ = process.wait();
    }

    #[test]
    fn a_path_is_looked_up_as_the_process_sees_it() {
        let (own, user) = (std::process::id(), rustix::process::geteuid().as_raw());
        let search = Search::default();
        let place = |pid: u32, path: &[u8], user: u32| {
            let mut page = vec![0u64; FIRST_PAGE / 8];
            // SAFETY: a page of writable memory, which lives longer than the value.
            let openings = unsafe { Openings::at(page.as_mut_ptr().cast()) };
            openings.put(pid, 0, path);
            place(&openings.get(0).expect("it was put"), user, &search)
        };
        let found = place(own, b"/lib/x.so", user).expect("this process");
        assert_eq!(found.file, PathBuf::from(format!("/proc/{own}")).join("root").join("lib/x.so"));
        let here = std::env::current_dir().expect("a folder");
        let relative = place(own, b"./x.so", user).expect("this process");
        assert_eq!(Path::new(OsStr::from_bytes(&relative.path)), here.join("./x.so"));
        assert_eq!(place(own, b"/lib/x.so", user.wrapping_add(1)), None, "another user's");
        assert_eq!(place(u32::MAX, b"/lib/x.so", user), None);
    }
}
