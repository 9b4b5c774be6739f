//! The functions of [pthreads(7)](https://man7.org/linux/man-pages/man7/pthreads.7.html) that wait, and C11's, which
//! stand in front of the real ones.
//!
//! A wait is counted when it is over. A mutex or a reader-writer lock was waited for if its function that does not wait
//! finds it taken; others do not say so, and what takes less than `LEAST` was no wait.
//!
//! Each returns what the real function returns. `pthread_mutex_trylock` and its relatives answer as those that wait
//! do, where there is nothing to wait for: the lock of an owner that has died, one that cannot be recovered, a count
//! that is full.

use crate::layout::{OWNER, WRITER};
use crate::LEAST;
use core::ffi::{c_int, c_void};
use uunwind_preload::events::{self, Real, Subject, Wait, WaitKind};

type Pointer = *mut c_void;

/// The id of the thread that has a lock, at this offset in it; 0: there is none that is known.
///
/// # Safety
/// The program's own lock.
unsafe fn holder(lock: Pointer, offset: usize) -> u32 {
    // Other C libraries have something else there.
    static OF_GLIBC: Real = Real::new(c"gnu_get_libc_version");
    if OF_GLIBC.get().is_null() {
        return 0;
    }
    // SAFETY: inside the lock, aligned; other threads change it.
    unsafe { lock.cast::<u8>().add(offset).cast::<u32>().read_volatile() }
}

/// Runs a function that waits, and counts how long it has, if that is at least `least` ns.
#[inline(always)]
fn timed(kind: WaitKind, lock: Pointer, holder: u32, least: u64, call: impl FnOnce() -> c_int) -> c_int {
    let begin = events::now();
    let result = call();
    let duration = events::now().saturating_sub(begin);
    if duration >= least {
        events::count(duration, None, || Subject::Wait(Wait { kind, lock: lock as u64, holder, duration }));
    }
    result
}

/// Declares how a real function is called.
macro_rules! real {
    ($real:ident, $symbol:literal, ($($arg:ident: $type:ty),*)) => {
        real!($real, $symbol, ($($arg: $type),*), libc::ENOSYS);
    };
    ($real:ident, $symbol:literal, ($($arg:ident: $type:ty),*), $missing:expr) => {
        unsafe fn $real($($arg: $type),*) -> c_int {
            static REAL: Real = Real::new($symbol);
            let real = REAL.get();
            if real.is_null() {
                return $missing;
            }
            // SAFETY: the function of this name has this type; the caller vouches for the arguments.
            unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn($($type),*) -> c_int>(real)($($arg),*) }
        }
    };
}

/// Declares a function that waits for a lock of which another function says whether it is taken.
macro_rules! locks {
    ($name:ident, $symbol:literal, $real:ident, $try:ident, $kind:ident, $offset:expr, ($lock:ident $(, $arg:ident: $type:ty)*)) => {
        real!($real, $symbol, ($lock: Pointer $(, $arg: $type)*));
        /// The interposed function of this name.
        ///
        /// # Safety
        /// As the real one.
        #[cfg_attr(panic = "abort", no_mangle)]
        pub unsafe extern "C" fn $name($lock: Pointer $(, $arg: $type)*) -> c_int {
            if !events::is_on() {
                // SAFETY: the program's own arguments.
                return unsafe { $real($lock $(, $arg)*) };
            }
            // SAFETY: as above.
            let tried = unsafe { $try($lock) };
            if tried != libc::EBUSY {
                return tried;
            }
            // SAFETY: as above.
            let holder = unsafe { holder($lock, $offset) };
            // SAFETY: as above.
            timed(WaitKind::$kind, $lock, holder, 0, || unsafe { $real($lock $(, $arg)*) })
        }
    };
}

/// Declares a function that may wait for what its argument names.
macro_rules! waits {
    ($name:ident, $symbol:literal, $real:ident, $kind:ident, ($lock:ident: $of:ty $(, $arg:ident: $type:ty)*)) => {
        real!($real, $symbol, ($lock: $of $(, $arg: $type)*));
        /// The interposed function of this name.
        ///
        /// # Safety
        /// As the real one.
        #[cfg_attr(panic = "abort", no_mangle)]
        pub unsafe extern "C" fn $name($lock: $of $(, $arg: $type)*) -> c_int {
            if !events::is_on() {
                // SAFETY: the program's own arguments.
                return unsafe { $real($lock $(, $arg)*) };
            }
            // SAFETY: as above.
            timed(WaitKind::$kind, $lock as Pointer, 0, LEAST, || unsafe { $real($lock $(, $arg)*) })
        }
    };
}

// Before glibc 2.34, a program without libpthread has some of the functions that lock, and none of these: then the lock
// may be taken.
real!(try_mutex, c"pthread_mutex_trylock", (mutex: Pointer), libc::EBUSY);
real!(try_read, c"pthread_rwlock_tryrdlock", (lock: Pointer), libc::EBUSY);
real!(try_write, c"pthread_rwlock_trywrlock", (lock: Pointer), libc::EBUSY);

locks!(pthread_mutex_lock, c"pthread_mutex_lock", mutex_lock, try_mutex, Mutex, OWNER, (mutex));
locks!(
    pthread_mutex_timedlock, c"pthread_mutex_timedlock", mutex_timedlock, try_mutex, Mutex, OWNER,
    (mutex, time: Pointer)
);
locks!(
    pthread_mutex_clocklock, c"pthread_mutex_clocklock", mutex_clocklock, try_mutex, Mutex, OWNER,
    (mutex, clock: c_int, time: Pointer)
);
locks!(pthread_rwlock_rdlock, c"pthread_rwlock_rdlock", rwlock_rdlock, try_read, Read, WRITER, (lock));
locks!(
    pthread_rwlock_timedrdlock, c"pthread_rwlock_timedrdlock", rwlock_timedrdlock, try_read, Read, WRITER,
    (lock, time: Pointer)
);
locks!(
    pthread_rwlock_clockrdlock, c"pthread_rwlock_clockrdlock", rwlock_clockrdlock, try_read, Read, WRITER,
    (lock, clock: c_int, time: Pointer)
);
locks!(pthread_rwlock_wrlock, c"pthread_rwlock_wrlock", rwlock_wrlock, try_write, Write, WRITER, (lock));
locks!(
    pthread_rwlock_timedwrlock, c"pthread_rwlock_timedwrlock", rwlock_timedwrlock, try_write, Write, WRITER,
    (lock, time: Pointer)
);
locks!(
    pthread_rwlock_clockwrlock, c"pthread_rwlock_clockwrlock", rwlock_clockwrlock, try_write, Write, WRITER,
    (lock, clock: c_int, time: Pointer)
);

// Of the two versions of these, the one for conditions of 48 bytes (glibc 2.3.2): programs of the other one would have
// been linked before x86-64 had a release.
waits!(pthread_cond_wait, c"pthread_cond_wait", cond_wait, Condition, (condition: Pointer, mutex: Pointer));
waits!(
    pthread_cond_timedwait, c"pthread_cond_timedwait", cond_timedwait, Condition,
    (condition: Pointer, mutex: Pointer, time: Pointer)
);
waits!(
    pthread_cond_clockwait, c"pthread_cond_clockwait", cond_clockwait, Condition,
    (condition: Pointer, mutex: Pointer, clock: c_int, time: Pointer)
);
waits!(sem_wait, c"sem_wait", semaphore_wait, Semaphore, (semaphore: Pointer));
waits!(sem_timedwait, c"sem_timedwait", semaphore_timedwait, Semaphore, (semaphore: Pointer, time: Pointer));
waits!(
    sem_clockwait, c"sem_clockwait", semaphore_clockwait, Semaphore,
    (semaphore: Pointer, clock: c_int, time: Pointer)
);
waits!(pthread_barrier_wait, c"pthread_barrier_wait", barrier_wait, Barrier, (barrier: Pointer));
waits!(pthread_join, c"pthread_join", thread_join, End, (thread: usize, result: Pointer));
waits!(
    pthread_timedjoin_np, c"pthread_timedjoin_np", thread_timedjoin, End,
    (thread: usize, result: Pointer, time: Pointer)
);
waits!(
    pthread_clockjoin_np, c"pthread_clockjoin_np", thread_clockjoin, End,
    (thread: usize, result: Pointer, clock: c_int, time: Pointer)
);
waits!(mtx_lock, c"mtx_lock", c11_lock, Mutex, (mutex: Pointer));
waits!(mtx_timedlock, c"mtx_timedlock", c11_timedlock, Mutex, (mutex: Pointer, time: Pointer));
waits!(cnd_wait, c"cnd_wait", c11_wait, Condition, (condition: Pointer, mutex: Pointer));
waits!(cnd_timedwait, c"cnd_timedwait", c11_timedwait, Condition, (condition: Pointer, mutex: Pointer, time: Pointer));
waits!(thrd_join, c"thrd_join", c11_join, End, (thread: usize, result: Pointer));
