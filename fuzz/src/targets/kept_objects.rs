//! The cache on disk of what was found of a file: whatever an entry contains, it is refused, or says the same when it
//! is written again.
//!
//! | bytes | |
//! |---|---|
//! | 1 | 0: unchanged; else: with a right checksum, as a forger would write it |
//! | rest | the entry |

use sha2::{Digest, Sha256};
use uunwind_setup::kept::{decode, encode};

pub fn run(data: &[u8]) -> bool {
    let (forged, bytes) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let mut entry = bytes.to_vec();
    if let Some((sum, body)) = entry.split_first_chunk_mut::<32>().filter(|_| forged != 0) {
        sum.copy_from_slice(&Sha256::digest(body));
    }
    let Some(found) = decode(&entry) else { return false };
    if let Some(facts) = &found.facts {
        assert!(!facts.plugin.is_empty() && facts.bytes.len() < entry.len());
    }
    assert_eq!(decode(&encode(&found)), Some(found), "written again, it says something else");
    true
}
