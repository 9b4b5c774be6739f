//! The process as it is now: what covers a pc, which source has its rule, and for how long an answer holds.
//!
//! [`env::Live`] answers the questions of a walk ([`uunwind_core::walk::Env`]) for the process that it runs in:
//!
//! ```text
//! state            what the process has once: objects, windows, thread slots, caches of rules, plugins
//! env              the environment of one walk: current object, its rule, its claim
//! current_object   the object that the current frame lies in
//! tables           rule tables: from the recorder, or from uu_setup
//! plugin_rule      rules that a plugin gives for its own code
//! in_window        frames in code that was registered at run time; window_rule, window_functions: their rules and names
//! unowned          which plugins are asked about code that no object covers
//! fallback_rule    rules where no unwind data covers an address
//! prologue         functions with a frame pointer, before they have set it up; at_return: functions at their return
//! built_by_caller  frames that the caller sets up for its callee (SBCL)
//! skipped          callers that a frame pointer would skip, by the words of the stack that it passes by
//! own_stack        whether a frame lies on the stack that its thread was started on
//! embedder         frames that an interpreter publishes itself
//! replay_dependencies  what a walk depended on: the conditions of its replay
//! short_rule_keys  the epoch that stands for all short rules
//! runtime_locks    how a sampled thread stands to the locks of the runtimes that are loaded
//! step_caches      memory for the threads' last captured steps
//! ```
//!
//! A signal room: no allocation, lock, thread-local, panic or unbounded loop; foreign bytes only through
//! [`uunwind_core::memory::Reader`].
#![cfg_attr(not(test), no_std)]

pub mod at_return;
pub mod built_by_caller;
pub mod current_object;
pub mod embedder;
pub mod env;
pub mod fallback_rule;
pub mod in_window;
pub mod own_stack;
pub mod plugin_rule;
pub mod prologue;
pub mod replay_dependencies;
pub mod runtime_locks;
pub mod short_rule_keys;
pub mod skipped;
pub mod state;
pub mod step_caches;
pub mod tables;
pub mod unowned;
pub mod window_functions;
pub mod window_rule;
