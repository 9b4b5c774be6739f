//! What libuunwind has been given so far. One immutable value, published whole: whoever reads it needs no lock, and a
//! call that fails in the middle publishes what it has done.

use crate::forked;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use uunwind_elf::FileId;

/// A plugin that is installed in libuunwind.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The name that it gave itself in `uu_plugin.name`.
    pub name: String,
    /// Its index in libuunwind.
    pub index: u32,
    /// Whether its analyse half is a part of uu, and runs in this process.
    pub built_in: bool,
}

/// What libuunwind has been given.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The plugins, in the order in which an object is offered to them.
    pub plugins: Vec<Installed>,
    /// Plugins whose analyse half is not one of uu's own: their files.
    pub foreign: Vec<PathBuf>,
    /// Files of plugins that need no further look: installed, or another one has the name.
    pub opened: HashSet<PathBuf>,
    /// Keys of the objects that have a rule table.
    pub tables: HashSet<u64>,
    /// Files of the objects that libuunwind has all of: table and facts.
    pub done: HashSet<FileId>,
    /// What was there when libuunwind had been given all of it; `None`: something is still to come.
    pub settled: Option<Settled>,
}

/// What a set-up follows from. While it is the same, there is nothing to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// How many objects were loaded and unloaded so far, in all link namespaces.
    pub loads: (u64, u64),
    /// Where plugins are looked for, and what is there.
    pub plugins: Vec<(PathBuf, Option<FileId>)>,
}

/// The loader's counts of what it has loaded and unloaded.
pub fn loads() -> Option<(u64, u64)> {
    if forked::is_child() {
        return forked::loads();
    }
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, to: *mut libc::c_void) -> i32 {
        if size >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the loader's structure, which has all fields; `to` is the caller's.
            unsafe { *to.cast::<Option<(u64, u64)>>() = Some(((*info).dlpi_adds, (*info).dlpi_subs)) };
        }
        1
    }
    let mut counts: Option<(u64, u64)> = None;
    // SAFETY: a function of this type, which is called with this pointer before this call returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    counts
}

static STATE: ArcSwapOption<State> = ArcSwapOption::const_empty();
/// Held by whoever changes [`STATE`], and [`init`] makes it. In the child of a fork it is a new one: another thread of
/// the parent may have held it, and does not exist there.
static LOCK: ArcSwapOption<Mutex<()>> = ArcSwapOption::const_empty();

/// Run by the loader, so that no fork comes between a first call and the handler for forks.
#[used]
#[link_section = ".init_array"]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    LOCK.store(Some(Arc::default()));
    // SAFETY: a function that lives as long as the process: this object is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// What libuunwind has been given, as of now. Takes no lock.
pub fn current() -> Arc<State> {
    STATE.load_full().unwrap_or_default()
}

/// Changes the state; waits for another thread that does.
///
/// `change` must not call the dynamic loader: a constructor may wait here while its thread holds the loader's lock.
pub fn change<T>(change: impl FnOnce(&mut State) -> T) -> T {
    // Outside of the lock for the same reason: the first use in a thread registers a destructor with the loader.
    let lock = LOCK.load_full().unwrap_or_default();
    let _changing = lock.lock();
    let mut state = State::clone(&current());
    let result = change(&mut state);
    STATE.store(Some(Arc::new(state)));
    result
}

unsafe extern "C" fn forked() {
    // What was given to libuunwind in the parent is there in the child, too. Only the lock may have an owner that does
    // not exist here.
    forked::note();
    std::mem::forget(LOCK.swap(Some(Arc::default())));
    crate::follow::forked();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_in_the_middle_of_a_change_leaves_no_lock() {
        change(|state| state.tables.insert(1));
        let (locked, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let (has, done) = (locked.0, wait.1);
        let thread = std::thread::spawn(move || {
            change(|_| {
                has.send(()).expect("the test waits");
                done.recv().expect("the test goes on");
            });
        });
        locked.1.recv().expect("the thread has the lock");
        // SAFETY: the child calls what it may, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child, also if it waits for ever.
            unsafe { libc::alarm(20) };
            let there = change(|state| state.tables.contains(&1));
            // SAFETY: as above.
            unsafe { libc::_exit(if there { 7 } else { 8 }) };
        }
        wait.0.send(()).expect("the thread waits");
        thread.join().expect("no panic");
        let mut status = 0;
        // SAFETY: the child of this process.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}
