//! The unwind ranges of `.eh_frame`: where functions begin and end, which stripped files have, too.

use super::image::Image;
use super::view::Function;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, Pointer, UnwindContext, UnwindSection,
};
use object::elf;
use uunwind_core::span::Span;

/// `.eh_frame_hdr` is not read beyond this; its first 12 bytes say where `.eh_frame` is.
const HEADER_LIMIT: u64 = 64;
/// No longer `.eh_frame` is read.
const FRAMES_LIMIT: u64 = 256 << 20;
/// DWARF number of the stack pointer.
const SP: gimli::Register = gimli::Register(uunwind_core::regs::SP as u16);

impl Image {
    /// All unwind ranges, by address; empty when there are none. Ends at the first malformed entry.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = self.read_functions().unwrap_or_default();
        functions.sort_by_key(|f| f.span.start);
        functions
    }

    fn read_functions(&self) -> Option<Vec<Function>> {
        let header = self.segment(elf::PT_GNU_EH_FRAME)?;
        let mut bytes = vec![0; header.file_size.min(HEADER_LIMIT) as usize];
        if !self.read_address(header.address, &mut bytes) {
            return None;
        }
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
        let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(start) = parsed.eh_frame_ptr() else { return None };
        let holder = |s: &&super::Segment| {
            s.kind == elf::PT_LOAD && start.checked_sub(s.address).is_some_and(|within| within < s.file_size)
        };
        let segment = self.segments().iter().find(holder)?;
        let len = (segment.file_size - (start - segment.address)).min(FRAMES_LIMIT);
        let mut bytes = vec![0; len as usize];
        if !self.read_address(start, &mut bytes) {
            return None;
        }
        let section = EhFrame::new(&bytes, LittleEndian);
        let bases = bases.set_eh_frame(start);
        let mut entries = section.entries(&bases);
        let mut context = UnwindContext::new();
        let mut functions = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { break };
            let start = fde.initial_address();
            let Some(end) = start.checked_add(fde.len()).filter(|end| *end > start) else { continue };
            let row = fde.unwind_info_for_address(&section, &bases, &mut context, start);
            let cfa_offset = match row.map(|row| row.cfa().clone()) {
                Ok(CfaRule::RegisterAndOffset { register: SP, offset }) => u64::try_from(offset).unwrap_or(0),
                _ => 0,
            };
            functions.push(Function { span: Span::new(start, end), cfa_offset });
        }
        Some(functions)
    }
}
