//! What libuunwind has been given so far. One immutable value, published whole: whoever reads it needs no lock, and a
//! call that fails in the middle publishes what it has done.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, Once};

/// A plugin that is installed in libuunwind.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// Its index in libuunwind.
    pub index: u32,
}

/// What libuunwind has been given.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Plugins were looked for.
    pub plugins_are_open: bool,
    /// The plugins, in the order in which an object is offered to them.
    pub plugins: Vec<Installed>,
    /// Plugins whose analyse half is not one of uu's own: their files.
    pub foreign: Vec<std::path::PathBuf>,
    /// Keys of the objects that have a rule table.
    pub tables: HashSet<u64>,
    /// Keys of the objects that have been looked at.
    pub done: HashSet<u64>,
}

static STATE: ArcSwapOption<State> = ArcSwapOption::const_empty();
/// Held by whoever changes [`STATE`]. In the child of a fork it is a new one: another thread of the parent may have
/// held it, and does not exist there.
static LOCK: ArcSwapOption<Mutex<()>> = ArcSwapOption::const_empty();

/// Changes the state; waits for another thread that does.
pub fn change<T>(change: impl FnOnce(&mut State) -> T) -> T {
    static FORKS: Once = Once::new();
    FORKS.call_once(|| {
        LOCK.store(Some(Arc::default()));
        // SAFETY: a function that lives as long as the process: this object is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    let lock = LOCK.load_full().unwrap_or_default();
    let _changing = lock.lock();
    let mut state = STATE.load_full().map(|state| State::clone(&state)).unwrap_or_default();
    let result = change(&mut state);
    STATE.store(Some(Arc::new(state)));
    result
}

unsafe extern "C" fn forked() {
    // What was given to libuunwind in the parent is there in the child, too. Only the lock may have an owner that does
    // not exist here.
    std::mem::forget(LOCK.swap(Some(Arc::default())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_in_the_middle_of_a_change_leaves_no_lock() {
        change(|state| state.done.insert(1));
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
            let there = change(|state| state.done.contains(&1));
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
