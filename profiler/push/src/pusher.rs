//! Profiles for Pyroscope's own API: pprof, by Connect
//! ([push.v1](https://github.com/grafana/pyroscope/blob/main/api/push/v1/push.proto)).

use crate::attempt::Attempt;
use crate::connect;
use crate::labels::{add, message, name_of, Label};
use crate::target::Target;
use crate::tls::Trust;
use std::time::Duration;
use uunwind_recording::Recording;
use uunwind_report::formats::proto::Message;

const METHOD: &str = "push.v1.PusherService/Push";
/// What Pyroscope calls the service.
pub(crate) const NAME: &str = "service_name";
/// Stands for the query that requests of `/ingest` have, where they wait.
pub(crate) const REQUEST: &str = "push.v1";

/// A `PushRequest` with a profile of a recording, as compressed pprof.
pub(crate) fn request(labels: &[Label], recording: &Recording, profile: &[u8]) -> Vec<u8> {
    let mut all = labels.to_vec();
    add(&mut all, "__name__", name_of(recording));
    // What was allocated, and how long locks were waited for, is that of the profile's time, and no sum since the
    // program's start, of which the store would take the difference.
    add(&mut all, "__delta__", "false");
    // As the requests of `/ingest` have it.
    add(&mut all, "pyroscope_spy", "uu");
    all.sort();
    let mut series = Message::default();
    for label in &all {
        series.message(1, message(label));
    }
    let mut sample = Message::default();
    sample.bytes(1, profile);
    series.message(2, sample);
    let mut request = Message::default();
    request.message(1, series);
    request.into_bytes()
}

/// Sends a request. Takes at most about `longest`.
pub(crate) fn push(target: &Target, trust: &mut Trust, request: &[u8], longest: Duration) -> Attempt {
    connect::call(target, trust, METHOD, request, longest)
}
