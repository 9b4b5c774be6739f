//! Profiles for [Parca](https://www.parca.dev): pprof, by the gRPC of its
//! [profile store](https://github.com/parca-dev/parca/blob/main/proto/parca/profilestore/v1alpha1/profilestore.proto).

use crate::attempt::Attempt;
use crate::grpc::{call, Message as Framed};
use crate::grpc_status::judge;
use crate::labels::{add, message, name_of, Label};
use crate::message::fields;
use crate::target::Target;
use crate::tls::Trust;
use std::time::Duration;
use uunwind_recording::Recording;
use uunwind_report::formats::proto::Message;

const SERVICE: &str = "parca.profilestore.v1alpha1.ProfileStoreService";
/// What Parca calls the service: as what it scrapes.
pub(crate) const NAME: &str = "job";
/// Stands for the query that Pyroscope's requests have, where they wait.
pub(crate) const REQUEST: &str = "parca";

/// A `WriteRawRequest` with these profiles of a recording, as compressed pprof.
pub(crate) fn request(labels: &[Label], recording: &Recording, profiles: &[Vec<u8>]) -> Vec<u8> {
    let mut all = labels.to_vec();
    add(&mut all, "__name__", name_of(recording));
    // As Parca's agent has it.
    add(&mut all, "node", &recording.settings.host);
    all.sort();
    let mut set = Message::default();
    for label in &all {
        set.message(1, message(label));
    }
    let mut series = Message::default();
    series.message(1, set);
    for profile in profiles {
        let mut sample = Message::default();
        sample.bytes(1, profile);
        series.message(2, sample);
    }
    let mut request = Message::default();
    request.message(2, series);
    // `normalized`: addresses are those of files.
    request.number(3, 1);
    request.into_bytes()
}

/// Sends a request. Takes at most about `longest`.
pub(crate) fn write(target: &Target, trust: &mut Trust, request: &[u8], longest: Duration) -> Attempt {
    let answer = call(target, trust, &format!("{SERVICE}/WriteRaw"), Framed::Plain(request), longest);
    judge(answer, accepted, SERVICE, "UU_PUSH_TOKEN, or UU_PUSH_USER and UU_PUSH_PASSWORD")
}

/// What a `WriteRawResponse` says: nothing.
fn accepted(message: &[u8]) -> Attempt {
    match fields(message) {
        Some(_) => Attempt::Sent,
        None => Attempt::Refused("the answer is not one of Parca".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::of_service;
    use uunwind_recording::Settings;

    /// The texts in a request, but for the profile.
    #[test]
    fn profiles_have_the_names_that_parca_knows() {
        let mut recording = Recording::default();
        recording.settings.host = "h".to_owned();
        for (flags, name) in
            [(0, "process_cpu"), (Settings::WALL, "wall"), (Settings::LOCK, "mutex"), (Settings::ALLOC, "memory")]
        {
            recording.settings.flags = flags;
            let request = request(&of_service(NAME, "shop", &[]).expect("valid"), &recording, &[b"p".to_vec()]);
            let label = |name: &str, value: &str| {
                let text = |field: u8, text: &str| [&[field, text.len() as u8], text.as_bytes()].concat();
                let label = [text(0x0a, name), text(0x12, value)].concat();
                [vec![0x0a, label.len() as u8], label].concat()
            };
            let set = [label("__name__", name), label("job", "shop"), label("node", "h")].concat();
            let series = [&[0x0a, set.len() as u8], &*set, &[0x12, 3, 0x0a, 1, b'p']].concat();
            assert_eq!(request, [&[0x12, series.len() as u8], &*series, &[0x18, 1]].concat(), "{name}");
        }
    }

    #[test]
    fn answers_are_messages() {
        assert_eq!(accepted(b""), Attempt::Sent);
        assert!(matches!(accepted(b"<html>"), Attempt::Refused(_)));
    }
}
