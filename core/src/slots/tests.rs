use super::holder::{Stake, CLAIMED};
use super::*;
#[cfg(target_arch = "x86_64")]
use crate::cache::steps::{At, StepCache};

fn slots() -> Box<Slots> {
    // SAFETY: all-zero is the free state.
    unsafe { Box::<Slots>::new_zeroed().assume_init() }
}

#[test]
fn walks_nest_and_stale_marks_are_cleared() {
    let slots = slots();
    let sp = stack_pointer() - 0x4000;
    let walking = slots.enter(sp, 2).expect("first walk");
    let inner = slots.enter(sp - 900, 4).expect("a sample interrupts a caller's walk");
    assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 2, "the older mark stands for both");
    inner.leave();
    let far = slots.enter(sp - (1 << 20), 4).expect("a handler may go deep before it walks");
    assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 2, "the outer walk goes on");
    far.leave();
    assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 2);
    walking.leave();
    assert!(!slots.is_walking());
    for out in [0, 100] {
        let _left_without_its_exit = slots.enter(sp, 2).expect("not busy");
        let walking = slots.enter(sp + out, 5).expect("an entry in the same place or nearer the root clears the mark");
        assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 5);
        walking.leave();
    }
    assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 0);
    let _left_without_its_exit = slots.enter(sp, 2).expect("not busy");
    assert!(!slots.is_walking(), "seen from an outer frame, that walk is over");
    assert_eq!(slots.oldest_mark(MarksOf::LivingThreads), 0);
    let tp = syscall::thread_pointer();
    assert!(slots.find(tp).is_some());
    slots.release(tp);
    assert!(slots.find(tp).is_none());
}

#[test]
fn a_capture_that_may_go_on_keeps_the_cached_steps() {
    let slots = slots();
    let slot = slots.current_or_claim().expect("room");
    let (first, second, third) = (Stake::new(), Stake::new(), Stake::new());
    let held = slot.step_cache_holder.hold(&first).expect("not held");
    assert!(slot.step_cache_holder.hold(&second).is_none(), "the first one is suspended, perhaps");
    held.leave();
    let _left_by_a_jump = slot.step_cache_holder.hold(&second).expect("given back");
    assert!(slot.step_cache_holder.hold(&third).is_none(), "its place on the stack is as it was");
    let place = core::ptr::from_ref(&second).cast::<AtomicU64>();
    // SAFETY: the stake is one such word.
    unsafe { (*place).store(7, Ordering::Relaxed) };
    slot.step_cache_holder.hold(&third).expect("its place on the stack is used for something else").leave();
    slot.step_cache_holder.hold(&first).expect("given back").leave();
}

#[test]
fn a_look_tells_whether_a_handler_has_held_the_cached_steps_meanwhile() {
    let slots = slots();
    let holder = &slots.current_or_claim().expect("room").step_cache_holder;
    assert!(holder.look().is_some_and(|look| look.was_clear()));
    let look = holder.look().expect("not held");
    let (first, second) = (Stake::new(), Stake::new());
    let held = holder.hold(&first).expect("not held");
    assert!(!look.was_clear() && holder.look().is_none());
    held.leave();
    assert!(!look.was_clear(), "it was held, and given back");
    // Left by a jump, and taken over.
    let _left = holder.hold(&first).expect("not held");
    assert!(holder.look().is_none(), "half changed, perhaps");
    first.withdraw();
    holder.hold(&second).expect("left").leave();
    assert!(holder.look().is_some_and(|look| look.was_clear()));
}

/// A fork copies the memory of other threads at any instruction, page by page.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_a_threads_captures_have_cached_goes_with_its_owner() {
    let slots = slots();
    // SAFETY: all-zero is none.
    let cache: Box<StepCache> = unsafe { Box::<StepCache>::new_zeroed().assume_init() };
    let stamp = 7;
    let slot = slots.current_or_claim().expect("room");
    slot.step_cache.store(core::ptr::from_ref(&*cache).cast_mut(), Ordering::Relaxed);
    let note = || {
        // SAFETY: it has no other user.
        let mut steps = unsafe { cache.begin(stamp) }.expect("the first walks are noted");
        let was_there = steps.may_follow();
        assert!(steps.begin_run(At { pc: 0x1000, sp: 0x2000 }));
        steps.finish();
        was_there
    };
    assert!(!note() && note(), "the second walk goes along the first one's steps");
    let tp = slot.thread_pointer.swap(0x7000, Ordering::Relaxed);
    slots.after_fork();
    assert!(slots.find(0x7000).is_none() && !note(), "another thread's, in the child of a fork");
    // The walk of the forking thread itself continues.
    slot.thread_pointer.store(tp, Ordering::Relaxed);
    slot.tid.store(1, Ordering::Relaxed);
    slots.after_fork();
    assert!(note(), "its own steps stay");
    slot.tid.store(u32::MAX - 1, Ordering::Relaxed);
    slots.tid_offset.store(64, Ordering::Relaxed);
    assert!(settle(slot, u32::MAX - 1, 9) && !note(), "another thread with the same thread pointer");
}

#[test]
fn a_slot_is_taken_over_from_a_thread_that_has_ended_and_from_no_other() {
    let slots = slots();
    slots.prepare(GLIBC);
    let own = std::thread::scope(|s| s.spawn(syscall::gettid).join().expect("no panic"));
    // Every slot that this thread may have in the first level has a living owner; then one of them ends.
    while !slots.is_gone(own) {
        // The kernel reports it shortly after the join.
        std::thread::yield_now();
    }
    let tp = syscall::thread_pointer();
    let probes: Vec<&Slot> = slots.levels.first().probes(tp).collect();
    for (i, slot) in (1u64..).zip(&probes) {
        slot.thread_pointer.store(tp + 64 * i, Ordering::Relaxed);
        slot.tid.store(syscall::gettid(), Ordering::Relaxed);
    }
    let further = slots.current_or_claim().expect("more are mapped");
    assert!(!probes.iter().any(|slot| core::ptr::eq(*slot, further)));
    assert!(core::ptr::eq(slots.current_or_claim().expect("found again"), further));
    assert_eq!(slots.used().count(), 1);
    slots.release(tp);
    for slot in slots.levels.all().skip(1).flat_map(|level| level.probes(tp)) {
        slot.thread_pointer.store(tp + 64, Ordering::Relaxed);
        slot.tid.store(syscall::gettid(), Ordering::Relaxed);
    }
    probes[40].tid.store(own, Ordering::Relaxed);
    assert!(core::ptr::eq(slots.current_or_claim().expect("taken over"), probes[40]));
    assert_eq!(slots.levels.further().count(), 1, "no further level is mapped for it");
}

#[test]
fn an_epoch_is_used_for_a_few_walks() {
    let slots = slots();
    let slot = slots.current_or_claim().expect("room");
    let used: Vec<u64> = (1..=40).map(|now| slot.epoch(|| now)).collect();
    assert_eq!(used[0], 1, "there was none before");
    for (now, used) in (1u64..).zip(used) {
        assert!(used <= now && now - used < 8, "{used} was used when it was {now}");
    }
}

#[test]
fn the_tid_word_is_found_on_this_thread_and_holds_on_another() {
    let slots = slots();
    slots.prepare(GLIBC);
    let slots = &*slots;
    std::thread::scope(|s| {
        s.spawn(|| assert_eq!(slots.tid(syscall::thread_pointer()), syscall::gettid()));
    });
}

/// Tasks that share a thread pointer run at the same time: between one's look at the other's stake and its claim, the
/// other may have given the steps back and taken them again.
#[test]
fn steps_that_were_taken_again_in_the_meantime_are_not_taken_over() {
    let slots = slots();
    let slot = slots.current_or_claim().expect("room");
    let (other, own) = (Stake::new(), Stake::new());
    let (at_other, at_own) = (other.stand(), own.stand());
    slot.step_cache_holder.by.store(at_other, Ordering::Relaxed);
    assert!(slot.step_cache_holder.hold(&own).is_none(), "the other's stake exists");

    // The other was seen as over, and has taken the steps again: they are its own still.
    assert!(slot.step_cache_holder.claim(at_other, at_own) && !slot.step_cache_holder.settle(at_other, at_own));
    assert_eq!(slot.step_cache_holder.by.load(Ordering::Relaxed), at_other);

    // The same, and it gives them back before the claim is settled.
    assert!(slot.step_cache_holder.claim(at_other, at_own));
    slot.step_cache_holder.by.store(0, Ordering::Relaxed);
    other.withdraw();
    assert!(!slot.step_cache_holder.settle(at_other, at_own));
    assert_eq!(slot.step_cache_holder.by.load(Ordering::Relaxed), 0);

    // It was left; so was a capture that had claimed them.
    for left in [at_other, at_other | CLAIMED] {
        slot.step_cache_holder.by.store(left, Ordering::Relaxed);
        assert!(slot.step_cache_holder.hold(&own).is_some());
        assert_eq!(slot.step_cache_holder.by.load(Ordering::Relaxed), at_own);
    }
}
