//! The layout of HotSpot's structures, by its own tables. A field has other names in other versions; which of them the
//! tables have decides, never the version.

use crate::tables::{Field, Tables};
use uunwind_elf::Image;
use uunwind_hotspot::facts::{
    Facts, Place, Plain, ABSENT, ADDRESS, FACTS_VERSION, FROM_BLOB, FROM_CODE, FROM_IMMUTABLE, FROM_MUTABLE,
    NUMBERS_NEW, NUMBERS_OLD,
};

/// Limit of an offset in a structure, in bytes.
const LARGEST: u64 = 4096;

/// The first of the fields that the tables have.
fn field<'t>(tables: &'t Tables, names: &[(&str, &str)]) -> Option<&'t Field> {
    names.iter().find_map(|(structure, name)| tables.field(structure, name))
}

fn missing(names: &[(&str, &str)]) -> String {
    let names: Vec<String> = names.iter().map(|(structure, name)| format!("{structure}::{name}")).collect();
    names.join(" or ")
}

/// The offset of a field.
fn offset_of(tables: &Tables, names: &[(&str, &str)]) -> Result<u32, String> {
    let found = field(tables, names).ok_or_else(|| format!("whose tables lack {}", missing(names)))?;
    let offset =
        found.offset.ok_or_else(|| format!("in whose file nothing stores the offset of {}", missing(names)))?;
    let fits = offset <= LARGEST;
    fits.then_some(offset as u32).ok_or_else(|| format!("whose tables give {} the offset {offset}", missing(names)))
}

/// The file address of a static field.
fn address_of(tables: &Tables, image: &Image, structure: &str, name: &str) -> Result<u64, String> {
    let found = tables.field(structure, name).map(|field| field.address).filter(|address| *address != 0);
    let found = found.ok_or_else(|| format!("whose tables lack {structure}::{name}"))?;
    let lies_inside = image.segments().iter().any(|segment| {
        found.checked_sub(segment.address).is_some_and(|inside| inside.saturating_add(8) <= segment.memory_size)
    });
    lies_inside.then_some(found).ok_or_else(|| format!("whose tables put {structure}::{name} outside of the file"))
}

fn size_of(tables: &Tables, structure: &str) -> Result<u32, String> {
    let size = tables.size(structure).filter(|size| *size <= LARGEST);
    size.map(|size| size as u32).ok_or_else(|| format!("whose tables give {structure} no possible size"))
}

/// A field that says where something is, in one of the forms that versions have.
fn place(tables: &Tables, forms: &[(&str, &str, u32)]) -> Result<Place, String> {
    for (structure, name, form) in forms {
        if tables.field(structure, name).is_some() {
            return Ok(Place { at: offset_of(tables, &[(structure, name)])?, form: *form });
        }
    }
    let names: Vec<(&str, &str)> = forms.iter().map(|(structure, name, _)| (*structure, *name)).collect();
    Err(format!("whose tables lack {}", missing(&names)))
}

/// The version of the JDK, as `Abstract_VM_Version` has it. JDK 8 makes that number when it starts; the names of some
/// fields are its own.
pub fn version(tables: &Tables, image: &Image) -> Option<u32> {
    if tables.field("CodeCache", "_heap").is_some() && tables.field("Method", "_constMethod").is_some() {
        return Some(8);
    }
    let address = tables.field("Abstract_VM_Version", "_vm_major_version")?.address;
    let mut bytes = [0; 4];
    image.read_address(address, &mut bytes).then(|| u32::from_le_bytes(bytes)).filter(|version| *version <= 1000)
}

/// The facts of a file with these tables.
///
/// # Errors
/// What is missing, or cannot be.
pub fn of(tables: &Tables, image: &Image, jdk: u32) -> Result<Facts, String> {
    let offset = |structure: &str, name: &str| offset_of(tables, &[(structure, name)]);
    let any = |names: &[(&str, &str)]| offset_of(tables, names);
    let optional = |structure: &str, name: &str| match tables.field(structure, name) {
        Some(_) => offset(structure, name),
        None => Ok(0),
    };
    let has_immutable = tables.field("nmethod", "_immutable_data").is_some();
    let has_mutable = tables.field("CodeBlob", "_mutable_data").is_some();
    let in_immutable = if has_immutable { FROM_IMMUTABLE } else { FROM_BLOB };
    let scopes = place(
        tables,
        &[("nmethod", "_scopes_data_offset", in_immutable), ("CompiledMethod", "_scopes_data_begin", ADDRESS)],
    )?;
    let pcs = place(tables, &[("nmethod", "_scopes_pcs_offset", in_immutable)])?;
    // What follows them.
    let pcs_end = match has_immutable {
        true => scopes,
        false => place(tables, &[("nmethod", "_dependencies_offset", FROM_BLOB)])?,
    };
    let metadata = match has_mutable {
        true => Place { at: 0, form: FROM_MUTABLE },
        false => place(tables, &[("nmethod", "_metadata_offset", FROM_BLOB)])?,
    };
    let frame_complete = field(tables, &[("CodeBlob", "_frame_complete_offset")]);
    // The code cache of JDK 8 is one heap.
    let has_heaps = tables.field("CodeCache", "_heap").is_none();
    let numbers = match jdk {
        8 | 11..=18 => NUMBERS_OLD,
        21.. => NUMBERS_NEW,
        // The form changed between these two.
        _ => return Err("whose compressed numbers are of a form that was not looked at".to_owned()),
    };
    let entry_frame = tables.constant("frame::entry_frame_call_wrapper_offset");
    if entry_frame != Some(-6) {
        return Err("whose entry frames are of another form".to_owned());
    }
    let pool_source = optional("ConstantPool", "_source_file_name_index")?;
    let of_class = |name: &str| if pool_source == 0 { offset("InstanceKlass", name) } else { Ok(0) };
    // Classes whose names do not say which one they are; later versions put that into the name.
    let anonymous = ["InstanceKlass::_misc_is_anonymous", "InstanceKlass::_misc_is_unsafe_anonymous"]
        .iter()
        .find_map(|name| tables.constant(name));
    let absent = Place { at: 0, form: ABSENT };
    let deopt_mh = [
        ("CompiledMethod", "_deopt_mh_handler_begin", ADDRESS),
        ("nmethod", "_deopt_mh_handler_offset", FROM_BLOB),
        ("nmethod", "_deoptimize_mh_offset", FROM_BLOB),
    ];
    let facts = Facts {
        size: core::mem::size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        cache_low: if has_heaps { address_of(tables, image, "CodeCache", "_low_bound")? } else { 0 },
        cache_high: if has_heaps { address_of(tables, image, "CodeCache", "_high_bound")? } else { 0 },
        cache_heaps: address_of(tables, image, "CodeCache", if has_heaps { "_heaps" } else { "_heap" })?,
        interpreter: address_of(tables, image, "AbstractInterpreter", "_code")?,
        call_stub_return: address_of(tables, image, "StubRoutines", "_call_stub_return_address")?,
        continuation_return: address_of(tables, image, "ContinuationEntry", "_return_pc").unwrap_or(0),
        jdk,
        numbers,
        array_len: any(&[("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")])?,
        array_data: offset("GrowableArray<int>", "_data")?,
        heap_memory: offset("CodeHeap", "_memory")?,
        heap_segments: offset("CodeHeap", "_segmap")?,
        heap_segment_shift: offset("CodeHeap", "_log2_segment_size")?,
        space_low: offset("VirtualSpace", "_low")?,
        space_high: offset("VirtualSpace", "_high")?,
        block_size: size_of(tables, "HeapBlock")?,
        block_used: offset("HeapBlock", "_header")?.saturating_add(offset("HeapBlock::Header", "_used")?),
        queue_buffer: offset("StubQueue", "_stub_buffer")?,
        queue_limit: offset("StubQueue", "_buffer_limit")?,
        blob_name: offset("CodeBlob", "_name")?,
        blob_frame_size: offset("CodeBlob", "_frame_size")?,
        blob_frame_complete: offset("CodeBlob", "_frame_complete_offset")?,
        blob_frame_complete_bits: if frame_complete.is_some_and(|f| f.kind.contains("16")) { 16 } else { 32 },
        blob_immutable: optional("nmethod", "_immutable_data")?,
        blob_mutable: optional("CodeBlob", "_mutable_data")?,
        blob_relocation_size: if has_mutable { offset("CodeBlob", "_relocation_size")? } else { 0 },
        blob_code: place(tables, &[("CodeBlob", "_code_begin", ADDRESS), ("CodeBlob", "_code_offset", FROM_BLOB)])?,
        blob_end: place(tables, &[("CodeBlob", "_code_end", ADDRESS), ("CodeBlob", "_data_offset", FROM_BLOB)])?,
        nmethod_method: any(&[("nmethod", "_method"), ("CompiledMethod", "_method")])?,
        nmethod_orig_pc: offset("nmethod", "_orig_pc_offset")?,
        nmethod_entry_bci: offset("nmethod", "_entry_bci")?,
        // The tables have no number for it. JDK 9 put the class's mirror into the frame, before that of the bytecode.
        interpreter_bytecode: if jdk < 9 { 56 } else { 64 },
        nmethod_deopt: place(
            tables,
            &[
                ("CompiledMethod", "_deopt_handler_begin", ADDRESS),
                ("nmethod", "_deopt_handler_offset", FROM_BLOB),
                ("nmethod", "_deoptimize_offset", FROM_BLOB),
                ("nmethod", "_deopt_handler_entry_offset", FROM_BLOB),
            ],
        )?,
        nmethod_deopt_mh: place(tables, &deopt_mh).unwrap_or(absent),
        nmethod_verified: place(
            tables,
            &[("nmethod", "_verified_entry_point", ADDRESS), ("nmethod", "_verified_entry_offset", FROM_CODE)],
        )?,
        nmethod_osr: place(tables, &[("nmethod", "_osr_entry_point", ADDRESS)])?,
        nmethod_stubs: place(tables, &[("nmethod", "_stub_offset", FROM_BLOB)])?,
        nmethod_metadata: metadata,
        nmethod_scopes: scopes,
        nmethod_pcs: pcs,
        nmethod_pcs_end: pcs_end,
        pc_size: size_of(tables, "PcDesc")?,
        pc_offset: offset("PcDesc", "_pc_offset")?,
        pc_scope: offset("PcDesc", "_scope_decode_offset")?,
        method_const: offset("Method", "_constMethod")?,
        const_size: size_of(tables, "ConstMethod")?,
        const_constants: offset("ConstMethod", "_constants")?,
        const_words: offset("ConstMethod", "_constMethod_size")?,
        const_flags: any(&[("ConstMethod", "_flags"), ("ConstMethod", "_flags._flags")])?,
        const_has_lines: ["ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table"]
            .iter()
            .find_map(|name| tables.constant(name))
            .ok_or("whose tables lack the flag of lines")? as u32,
        const_code_size: offset("ConstMethod", "_code_size")?,
        const_name: offset("ConstMethod", "_name_index")?,
        const_signature: offset("ConstMethod", "_signature_index")?,
        const_max_stack: offset("ConstMethod", "_max_stack")?,
        pool_size: size_of(tables, "ConstantPool")?,
        pool_length: offset("ConstantPool", "_length")?,
        pool_holder: offset("ConstantPool", "_pool_holder")?,
        pool_source,
        klass_name: offset("Klass", "_name")?,
        klass_source: of_class("_source_file_name_index")?,
        klass_constants: of_class("_constants")?,
        klass_flags: if anonymous.is_some() { offset("InstanceKlass", "_misc_flags")? } else { 0 },
        klass_anonymous: anonymous.unwrap_or(0) as u32,
        symbol_length: offset("Symbol", "_length")?,
        symbol_body: offset("Symbol", "_body")?,
    };
    // The signal half must accept what is called facts here; the bytes are aligned as it demands.
    match Facts::read(facts.as_bytes()) {
        Some(_) => Ok(facts),
        None => Err("whose tables contradict each other".to_owned()),
    }
}
