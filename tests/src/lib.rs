//! What the end-to-end tests share. The tests themselves are in `tests/`, one file a subject; the small programs under
//! observation in `targets/`; the house rules, as functions that can also be applied to a bad example, in [`rules`].
//!
//! The tests run the tree that `ci/build` lays out, never the objects that `cargo test` builds: those are linked with
//! std and are not what is shipped.

pub mod agents;
pub mod attached;
pub mod browser;
pub mod builds;
pub mod call_graph;
pub mod certificates;
pub mod cfi_oracle;
pub mod chance;
pub mod compile;
pub mod cores;
pub mod crash_report;
pub mod dumps;
pub mod embedded;
pub mod evidence;
pub mod executable;
pub mod faces;
pub mod gate;
pub mod go;
pub mod grpc;
pub mod header;
pub mod held;
pub mod interpreters;
pub mod java;
pub mod jvms;
pub mod landing_pads;
pub mod looks;
pub mod lua;
pub mod lua_grammar;
pub mod lua_graph;
pub mod lua_steps;
pub mod luajit;
pub mod nodes;
pub mod objects;
pub mod oracle;
pub mod own_view;
pub mod own_walks;
pub mod packages;
pub mod pair;
pub mod paths;
pub mod pending;
pub mod plugins;
pub mod pprof;
pub mod process;
pub mod readelf_rows;
pub mod readers;
pub mod receiver;
pub mod registered;
pub mod rules;
pub mod running;
pub mod samples;
pub mod scratch;
pub mod standing;
pub mod terminal;
pub mod uu;
pub mod waits;
pub mod web;
pub use uunwind_skips as skips;
