//! A short stack of values, in room that is not written before it is needed.

use core::mem::MaybeUninit;

/// At most N values, the last one first out.
pub struct Few<T, const N: usize> {
    values: [MaybeUninit<T>; N],
    count: usize,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// No values.
    #[allow(clippy::new_without_default, reason = "made once, where it is used")]
    #[inline(always)]
    pub const fn new() -> Few<T, N> {
        Few { values: [const { MaybeUninit::uninit() }; N], count: 0 }
    }

    /// Adds a value. False: there is no room.
    #[inline(always)]
    pub fn push(&mut self, value: &T) -> bool {
        let Some(place) = self.values.get_mut(self.count) else { return false };
        place.write(*value);
        self.count += 1;
        true
    }

    /// Takes the value that was added last; `None`: there is none.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<&T> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: `push` wrote all values below the count.
        self.values.get(self.count).map(|value| unsafe { value.assume_init_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_reverse_order_and_there_is_no_room_for_more() {
        let mut few = Few::<u64, 3>::new();
        assert_eq!(few.pop(), None);
        assert!(few.push(&1) && few.push(&2));
        assert_eq!(few.pop(), Some(&2));
        assert!(few.push(&3) && few.push(&4) && !few.push(&5));
        for wanted in [Some(&4), Some(&3), Some(&1)] {
            assert_eq!(few.pop(), wanted);
        }
        assert_eq!(few.pop(), None);
    }
}
