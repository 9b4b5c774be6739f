//! Reads requests of Pyroscope's push.v1 by the classes of its own client: read-pyroscope FILE...
//!
//! Each field must be one of the schema. Prints as JSON an answer of the store in hexadecimal, and of each request its
//! series: labels, and the files that the profiles become.

use prost::Message;
use pyroscope::encode::gen::push::{PushRequest, PushResponse};
use serde_json::json;

fn main() {
    let read = |file: String| {
        let bytes = std::fs::read(&file).expect("a request");
        let request = PushRequest::decode(&*bytes).expect("a PushRequest");
        assert_eq!(request.encoded_len(), bytes.len(), "a field that is not in the schema");
        let mut profiles = 0;
        let mut series = Vec::new();
        for one in &request.series {
            let labels: Vec<_> = one.labels.iter().map(|label| json!([label.name, label.value])).collect();
            let mut files = Vec::new();
            for sample in &one.samples {
                files.push(format!("{file}.{profiles}.pb.gz"));
                profiles += 1;
                std::fs::write(&files[files.len() - 1], &sample.raw_profile).expect("a place");
            }
            series.push(json!({"labels": labels, "profiles": files}));
        }
        json!({"series": series})
    };
    let requests: Vec<_> = std::env::args().skip(1).map(read).collect();
    let answer: String = PushResponse {}.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{}", json!({"answer": answer, "requests": requests}));
}
