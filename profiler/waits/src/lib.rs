//! Threads that wait, for recordings in wall mode: what each waits in, its stack, and how long (report room).
//!
//! ```text
//! waiting          what a thread waits in, and its stack, found at most once a wait
//! wait_intervals   when each wait of a thread began and ended
//! watcher          samples of the waiting threads of a recording whose running threads sample themselves
//! stops            what stops of threads cost
//! ```

pub mod stops;
pub mod wait_intervals;
pub mod waiting;
mod watcher;

pub use watcher::Watcher;
