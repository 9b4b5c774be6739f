//! Sends profiles of a recording that goes on to a store of profiles: `uu record --push URL`.
//!
//! ```text
//! target       where profiles go, and under which name: checked before the program starts
//! url          an URL in its parts
//! credentials  who asks
//! proxy        what stands between, by the usual variables
//! window       the part of a recording that was not sent yet, as pprof
//! spool        profiles that wait, in files, at most so many bytes
//! sender       a thread that sends them
//! pyroscope    a profile as Pyroscope takes it at /ingest
//! pusher       a profile as Pyroscope's own API takes it
//! otlp         a profile as OpenTelemetry describes it
//! container    in which container a process runs
//! parca        a profile as Parca takes it
//! labels       labels of a profile, for these two
//! message      messages of protocol buffers, read
//! backlog      profiles that wait, when they are tried again, and what became of them
//! attempt      what becomes of one attempt to send a profile
//! connect      one call of Connect, whose answer may be anything
//! http         one request of HTTP/1.1, whose answer may be anything
//! grpc         one call of gRPC, whose answer may be anything
//! grpc_status  how it ended
//! grpc_stream  a connection that never waits, for HTTP/2, and what waits in its place
//! connection   TCP or TLS, with a deadline
//! tls          whom the system trusts, and why not
//! ```
//!
//! A report room: nothing of it is in the program, which never talks to a network.

mod attempt;
mod backlog;
mod connect;
mod connection;
pub mod container;
mod credentials;
mod grpc;
mod grpc_status;
mod grpc_stream;
mod http;
mod labels;
mod message;
mod otlp;
mod parca;
mod proxy;
mod pusher;
mod pyroscope;
mod secured;
mod sender;
mod spool;
mod target;
mod tls;
mod url;
mod window;

pub use backlog::Counts;
pub use credentials::Credentials;
pub use sender::Sender;
pub use target::{Target, TargetError};
pub use window::{Profile, Windows};
