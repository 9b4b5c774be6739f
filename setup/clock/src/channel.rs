//! The channel of [`std::sync::mpsc`], with a wait that has a limit.

use crate::{Bell, Instant};
use std::sync::mpsc::{self, RecvTimeoutError, SendError, TryRecvError};
use std::sync::Arc;
use std::time::Duration;

/// The sending half.
pub struct Sender<T> {
    // Dropped first: whoever is woken by the last ring finds it gone.
    channel: Option<mpsc::Sender<T>>,
    bell: Arc<Bell>,
}

/// The receiving half.
pub struct Receiver<T> {
    channel: mpsc::Receiver<T>,
    bell: Arc<Bell>,
}

/// A channel without a limit on what waits in it.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let ((sender, receiver), bell) = (mpsc::channel(), Arc::new(Bell::default()));
    (Sender { channel: Some(sender), bell: bell.clone() }, Receiver { channel: receiver, bell })
}

impl<T> Sender<T> {
    /// Sends a value. Error: the receiver is gone; the value.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        match &self.channel {
            Some(channel) => channel.send(value)?,
            None => return Err(SendError(value)),
        }
        self.bell.ring();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { channel: self.channel.clone(), bell: self.bell.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.channel = None;
        self.bell.ring();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value, but not longer than this. Error: there was none in this time, or all senders are gone.
    pub fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
        let begun = Instant::now();
        loop {
            let mark = self.bell.mark();
            match self.channel.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let left = longest.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            self.bell.wait(mark, left);
        }
    }

    /// The values that are there by now.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        self.channel.try_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_an_end_and_a_limit_end_a_wait() {
        let hour = Duration::from_secs(3600);
        let (sender, receiver) = channel();
        assert_eq!(receiver.recv_timeout(Duration::from_millis(5)), Err(RecvTimeoutError::Timeout));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        std::thread::scope(|scope| {
            let other = sender.clone();
            scope.spawn(move || other.send(7));
            assert_eq!(receiver.recv_timeout(hour), Ok(7));
            sender.send(8).expect("it is received");
            assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [8]);
            scope.spawn(move || drop(sender));
            assert_eq!(receiver.recv_timeout(hour), Err(RecvTimeoutError::Disconnected));
        });
        let (sender, receiver) = channel();
        drop(receiver);
        assert!(sender.send(9).is_err());
    }
}
