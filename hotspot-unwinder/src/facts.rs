//! The facts: what the analyse half found out for the signal half about one object that contains HotSpot.
//!
//! Addresses are file addresses (the load bias is to be added). Offsets are in bytes from the start of the structure
//! that the field's prefix names. Each comment gives HotSpot's name of the field; all come from the tables that HotSpot
//! exports for debuggers (`gHotSpotVMStructs` and its relatives).

use core::mem::size_of;
pub use uunwind_core::plugin::guest::Plain;

/// Version of this layout.
pub const FACTS_VERSION: u32 = 3;
/// Limit of all offsets in structures, in bytes.
const LARGEST: u32 = 4096;

/// `numbers::Numbers`: compressed numbers as JDK 8 to 18 have them.
pub const NUMBERS_OLD: u32 = 1;
/// `numbers::Numbers`: without bytes that are zero, as JDK 21 and later have them.
pub const NUMBERS_NEW: u32 = 2;

/// [`Place::form`]: the structure has no such field.
pub const ABSENT: u32 = 0;
/// [`Place::form`]: the field is an address.
pub const ADDRESS: u32 = 1;
/// [`Place::form`]: the field is a number of 32 bits, from the start of the blob.
pub const FROM_BLOB: u32 = 2;
/// [`Place::form`]: the field is a number of 16 bits, from the first instruction of the blob.
pub const FROM_CODE: u32 = 3;
/// [`Place::form`]: the field is a number of 32 bits, from the blob's immutable data.
pub const FROM_IMMUTABLE: u32 = 4;
/// [`Place::form`]: the field is a number of 32 bits, from the blob's mutable data.
pub const FROM_MUTABLE: u32 = 5;

uunwind_core::plain! {
    /// A field that says where something is.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Place {
        /// Offset of the field.
        pub at: u32,
        /// How it says so: [`ADDRESS`] and its like.
        pub form: u32,
    }
}

uunwind_core::plain! {
    /// Facts of one object.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,

        /// `CodeCache::_low_bound`; 0: there is one heap, and its bounds are those of the code cache.
        pub cache_low: u64,
        /// `CodeCache::_high_bound`
        pub cache_high: u64,
        /// `CodeCache::_heaps`, or `_heap` where there is one.
        pub cache_heaps: u64,
        /// `AbstractInterpreter::_code`
        pub interpreter: u64,
        /// `StubRoutines::_call_stub_return_address`
        pub call_stub_return: u64,
        /// `ContinuationEntry::_return_pc`; 0: there is none.
        pub continuation_return: u64,

        /// The version of the JDK: 17.
        pub jdk: u32,
        /// How numbers are compressed: [`NUMBERS_OLD`] or [`NUMBERS_NEW`].
        pub numbers: u32,

        /// `GrowableArrayBase::_len` (32 bits)
        pub array_len: u32,
        /// `GrowableArray<int>::_data`
        pub array_data: u32,
        /// `CodeHeap::_memory`
        pub heap_memory: u32,
        /// `CodeHeap::_segmap`
        pub heap_segments: u32,
        /// `CodeHeap::_log2_segment_size` (32 bits)
        pub heap_segment_shift: u32,
        /// `VirtualSpace::_low`
        pub space_low: u32,
        /// `VirtualSpace::_high`
        pub space_high: u32,
        /// Size of `HeapBlock`.
        pub block_size: u32,
        /// `HeapBlock::_header._used` (8 bits)
        pub block_used: u32,
        /// `StubQueue::_stub_buffer`
        pub queue_buffer: u32,
        /// `StubQueue::_buffer_limit` (32 bits)
        pub queue_limit: u32,

        /// `CodeBlob::_name`
        pub blob_name: u32,
        /// `CodeBlob::_frame_size`: words, 32 bits.
        pub blob_frame_size: u32,
        /// `CodeBlob::_frame_complete_offset`
        pub blob_frame_complete: u32,
        /// Its bits: 16 or 32.
        pub blob_frame_complete_bits: u32,
        /// `CodeBlob::_immutable_data` or `nmethod::_immutable_data`; 0: there is none.
        pub blob_immutable: u32,
        /// `CodeBlob::_mutable_data`; 0: there is none.
        pub blob_mutable: u32,
        /// `CodeBlob::_relocation_size` (32 bits): where metadata begins in the mutable data. 0: there is none.
        pub blob_relocation_size: u32,
        /// `CodeBlob::_code_begin` or `_code_offset`
        pub blob_code: Place,
        /// `CodeBlob::_code_end` or `_data_offset`
        pub blob_end: Place,

        /// `nmethod::_method` or `CompiledMethod::_method`
        pub nmethod_method: u32,
        /// `nmethod::_orig_pc_offset` (32 bits): from the frame's stack pointer.
        pub nmethod_orig_pc: u32,
        /// `nmethod::_entry_bci` (32 bits)
        pub nmethod_entry_bci: u32,
        /// Where a frame of the interpreter has the address of the bytecode: bytes below rbp
        /// (`frame::interpreter_frame_bcp_offset`); the fixed part ends a word below.
        pub interpreter_bytecode: u32,
        /// `CompiledMethod::_deopt_handler_begin` or `nmethod::_deopt_handler_offset`
        pub nmethod_deopt: Place,
        /// Likewise, for calls of method handles.
        pub nmethod_deopt_mh: Place,
        /// `nmethod::_verified_entry_point` or `_verified_entry_offset`
        pub nmethod_verified: Place,
        /// `nmethod::_osr_entry_point`
        pub nmethod_osr: Place,
        /// `nmethod::_stub_offset`
        pub nmethod_stubs: Place,
        /// `nmethod::_metadata_offset`; with [`FROM_MUTABLE`], `at` is not used.
        pub nmethod_metadata: Place,
        /// `nmethod::_scopes_data_offset` or `CompiledMethod::_scopes_data_begin`
        pub nmethod_scopes: Place,
        /// `nmethod::_scopes_pcs_offset`
        pub nmethod_pcs: Place,
        /// What follows these.
        pub nmethod_pcs_end: Place,

        /// Size of `PcDesc`.
        pub pc_size: u32,
        /// `PcDesc::_pc_offset` (32 bits)
        pub pc_offset: u32,
        /// `PcDesc::_scope_decode_offset` (32 bits)
        pub pc_scope: u32,

        /// `Method::_constMethod`
        pub method_const: u32,
        /// Size of `ConstMethod`; bytecode follows it.
        pub const_size: u32,
        /// `ConstMethod::_constants`
        pub const_constants: u32,
        /// `ConstMethod::_constMethod_size`: words, 32 bits.
        pub const_words: u32,
        /// `ConstMethod::_flags` (16 bits that concern lines)
        pub const_flags: u32,
        /// `ConstMethod::_has_linenumber_table`
        pub const_has_lines: u32,
        /// `ConstMethod::_code_size` (16 bits)
        pub const_code_size: u32,
        /// `ConstMethod::_name_index` (16 bits)
        pub const_name: u32,
        /// `ConstMethod::_signature_index` (16 bits)
        pub const_signature: u32,
        /// `ConstMethod::_max_stack` (16 bits)
        pub const_max_stack: u32,
        /// Size of `ConstantPool`; its entries, of 8 bytes each, follow it.
        pub pool_size: u32,
        /// `ConstantPool::_length` (32 bits)
        pub pool_length: u32,
        /// `ConstantPool::_pool_holder`
        pub pool_holder: u32,
        /// `ConstantPool::_source_file_name_index` (16 bits); 0: the class has it.
        pub pool_source: u32,
        /// `Klass::_name`
        pub klass_name: u32,
        /// `InstanceKlass::_source_file_name_index` (16 bits), where the constant pool does not have it.
        pub klass_source: u32,
        /// `InstanceKlass::_constants`: the constant pool of that index.
        pub klass_constants: u32,
        /// `InstanceKlass::_misc_flags` (16 bits)
        pub klass_flags: u32,
        /// `InstanceKlass::_misc_is_anonymous`: the class's address is part of its name. 0: there is no such flag.
        pub klass_anonymous: u32,
        /// `Symbol::_length` (16 bits)
        pub symbol_length: u32,
        /// `Symbol::_body`
        pub symbol_body: u32,
    }
}

impl Facts {
    /// The facts that these bytes are, in place. `None` if they are cut short, not aligned, of another version, or hold
    /// what cannot be. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<&Facts> {
        Facts::view(bytes).filter(|facts| facts.plausible())
    }

    fn plausible(&self) -> bool {
        let offsets = [
            self.array_len,
            self.array_data,
            self.heap_memory,
            self.heap_segments,
            self.heap_segment_shift,
            self.space_low,
            self.space_high,
            self.block_size,
            self.block_used,
            self.queue_buffer,
            self.queue_limit,
            self.blob_name,
            self.blob_frame_size,
            self.blob_frame_complete,
            self.blob_immutable,
            self.blob_mutable,
            self.blob_relocation_size,
            self.nmethod_method,
            self.nmethod_orig_pc,
            self.nmethod_entry_bci,
            self.pc_size,
            self.pc_offset,
            self.pc_scope,
            self.method_const,
            self.const_size,
            self.const_constants,
            self.const_words,
            self.const_flags,
            self.const_code_size,
            self.const_name,
            self.const_signature,
            self.const_max_stack,
            self.pool_size,
            self.pool_length,
            self.pool_holder,
            self.pool_source,
            self.klass_name,
            self.klass_source,
            self.klass_constants,
            self.klass_flags,
            self.symbol_length,
            self.symbol_body,
        ];
        let places = [
            self.blob_code,
            self.blob_end,
            self.nmethod_deopt,
            self.nmethod_deopt_mh,
            self.nmethod_verified,
            self.nmethod_osr,
            self.nmethod_stubs,
            self.nmethod_metadata,
            self.nmethod_scopes,
            self.nmethod_pcs,
            self.nmethod_pcs_end,
        ];
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && self.block_size != 0
            && self.pc_size >= 8
            && matches!(self.interpreter_bytecode, 56 | 64)
            && offsets.iter().all(|offset| *offset <= LARGEST)
            && places.iter().all(|place| place.at <= LARGEST && place.form <= FROM_MUTABLE)
    }
}
