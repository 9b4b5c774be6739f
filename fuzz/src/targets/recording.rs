//! Recordings: unchanged, and once more with repaired checksums, since checksums stop most damage.

use std::path::Path;
use uunwind_built_in::HALVES;
use uunwind_recording::languages::complete;
use uunwind_recording::Recording;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;

pub fn run(data: &[u8]) -> bool {
    let _ = Recording::parse(data, Path::new("x.uu"));
    let mut repaired = data.to_vec();
    repair(&mut repaired);
    let Ok(mut recording) = Recording::parse(&repaired, Path::new("x.uu")) else { return false };
    // Without symbols, the reports would open files by the paths in the recording.
    recording.symbols.get_or_insert_default();
    complete(&mut recording, HALVES);
    // One format for each input: reports take long.
    let number = recording.samples.len().wrapping_add(data.len()) % Format::rendered().count();
    let format = Format::rendered().nth(number).expect("there are formats");
    for native_frames in [NativeFrames::Hide, NativeFrames::Show] {
        let made = render(format, &recording, native_frames);
        assert!(made.is_ok() || format == Format::Svg && recording.samples.is_empty(), "{format:?}: {made:?}");
    }
    !recording.samples.is_empty()
}

/// Writes the right checksum after every section that can still be parsed.
pub fn repair(bytes: &mut [u8]) {
    let mut at = uunwind_recording::HEADER_BYTES;
    while let Some(len) = bytes.get(at + 4..at + 8).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize) {
        let end = at + 8 + len;
        let Some(framed) = bytes.get(at..end) else { return };
        let mut crc = flate2::Crc::new();
        crc.update(framed);
        let sum = crc.sum().to_le_bytes();
        let Some(place) = bytes.get_mut(end..end + 4) else { return };
        place.copy_from_slice(&sum);
        at = end + 4;
    }
}
