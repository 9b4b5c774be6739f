//! Labels of a profile, for stores that take them beside pprof: Parca, and Pyroscope by its API.

use crate::target::{checked, checked_service, TargetError};
use uunwind_recording::Recording;
use uunwind_report::formats::proto::Message;

/// A label: its name and its value.
pub(crate) type Label = (String, String);

/// Labels of each profile: those that were asked for, and the service, as the store calls it.
pub(crate) fn of_service(name: &str, service: &str, labels: &[String]) -> Result<Vec<Label>, TargetError> {
    let service = checked_service(service)?;
    let mut all: Vec<Label> = Vec::new();
    for label in labels {
        let (key, value) = checked(label)?.split_once('=').unwrap_or_default();
        add(&mut all, key, value);
    }
    add(&mut all, name, service);
    Ok(all)
}

/// Names are unique; the first one counts. Stores take no empty value for one.
pub(crate) fn add(all: &mut Vec<Label>, name: &str, value: &str) {
    if !value.is_empty() && all.iter().all(|(other, _)| other != name) {
        all.push((name.to_owned(), value.to_owned()));
    }
}

/// What a profile of this recording is called (`__name__`): by this and the types of its values, stores know a profile,
/// and their pages say what it is: those of Go programs.
pub(crate) fn name_of(recording: &Recording) -> &'static str {
    match recording.value().name {
        "cpu" => "process_cpu",
        "delay" => "mutex",
        "space" => "memory",
        other => other,
    }
}

/// A label as a message: its name is field 1, its value 2.
pub(crate) fn message((name, value): &Label) -> Message {
    let mut label = Message::default();
    label.bytes(1, name.as_bytes());
    label.bytes(2, value.as_bytes());
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_there_once() {
        let given = ["zone=b".to_owned(), "job=own".to_owned(), "zone=c".to_owned()];
        let all = of_service("job", "shop", &given).expect("valid");
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        assert_eq!(all, [("zone", "b"), ("job", "own")].map(pair));
        assert_eq!(of_service("job", "a b", &[]), Err(TargetError::Service));
        assert_eq!(of_service("job", "shop", &["1=x".to_owned()]), Err(TargetError::Label));
    }
}
