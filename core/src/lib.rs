#![cfg_attr(not(test), no_std)]
pub mod frame;
pub mod plugin;
pub mod stop_reason;
