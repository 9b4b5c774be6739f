//! Waits for locks of Rust's standard library and of parking_lot, and says for each kind: how often; how long at least,
//! from when the thread was seen to sleep until the lock was given, and at most, by a clock around the call (ns); the
//! lock's address and size.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 20;

static MUTEX: Mutex<()> = Mutex::new(());
static RWLOCK: RwLock<()> = RwLock::new(());
static OF_CONDITION: Mutex<bool> = Mutex::new(false);
static CONDITION: Condvar = Condvar::new();
static PARKED: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
static PARKED_IS_SET: parking_lot::Mutex<bool> = parking_lot::Mutex::new(false);
static PARKED_CONDITION: parking_lot::Condvar = parking_lot::Condvar::new();

static WAITER: AtomicI32 = AtomicI32::new(0);
static AT_MOST: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn for_mutex() {
    drop(MUTEX.lock().expect("no panic"));
}

#[inline(never)]
fn for_rwlock() {
    drop(RWLOCK.read().expect("no panic"));
}

#[inline(never)]
fn for_condition() {
    let mut is_set = OF_CONDITION.lock().expect("no panic");
    while !*is_set {
        is_set = CONDITION.wait(is_set).expect("no panic");
    }
}

#[inline(never)]
fn for_parked_mutex() {
    drop(PARKED.lock());
}

#[inline(never)]
fn for_parked_condition() {
    let mut is_set = PARKED_IS_SET.lock();
    while !*is_set {
        PARKED_CONDITION.wait(&mut is_set);
    }
}

/// What the thread that waits runs. From here on it sleeps nowhere else.
#[inline(never)]
fn waits(wait: fn()) {
    let begun = Instant::now();
    // SAFETY: a plain call.
    WAITER.store(unsafe { libc::gettid() }, SeqCst);
    wait();
    AT_MOST.fetch_add(begun.elapsed().as_nanos() as u64, SeqCst);
}

fn sleeps(tid: i32) -> bool {
    let line = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    line.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

/// Lets a thread wait, `give` gives it the lock; returns the time from when it slept until then.
fn round(wait: fn(), give: impl FnOnce()) -> u64 {
    WAITER.store(0, SeqCst);
    let thread = std::thread::spawn(move || waits(wait));
    while WAITER.load(SeqCst) == 0 || !sleeps(WAITER.load(SeqCst)) {
        std::thread::yield_now();
    }
    let seen = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    let least = seen.elapsed().as_nanos() as u64;
    give();
    thread.join().expect("no panic");
    least
}

fn each<T>(name: &str, lock: &T, wait: fn(), mut one: impl FnMut(fn()) -> u64) {
    AT_MOST.store(0, SeqCst);
    let least: u64 = (0..ROUNDS).map(|_| one(wait)).sum();
    let most = AT_MOST.load(SeqCst);
    let (address, size) = (std::ptr::from_ref(lock).addr(), std::mem::size_of::<T>());
    println!("{name} {ROUNDS} {least} {most} {address} {size}");
}

fn main() {
    each("for_mutex", &MUTEX, for_mutex, |wait| {
        let held = MUTEX.lock().expect("no panic");
        round(wait, || drop(held))
    });
    each("for_rwlock", &RWLOCK, for_rwlock, |wait| {
        let held = RWLOCK.write().expect("no panic");
        round(wait, || drop(held))
    });
    each("for_condition", &CONDITION, for_condition, |wait| {
        *OF_CONDITION.lock().expect("no panic") = false;
        round(wait, || {
            *OF_CONDITION.lock().expect("no panic") = true;
            CONDITION.notify_one();
        })
    });
    each("for_parked_mutex", &PARKED, for_parked_mutex, |wait| {
        let held = PARKED.lock();
        round(wait, || drop(held))
    });
    each("for_parked_condition", &PARKED_CONDITION, for_parked_condition, |wait| {
        *PARKED_IS_SET.lock() = false;
        round(wait, || {
            *PARKED_IS_SET.lock() = true;
            PARKED_CONDITION.notify_one();
        })
    });
}
