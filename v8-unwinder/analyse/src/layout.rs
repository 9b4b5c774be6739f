//! The structures: by V8's own numbers where it exports them, else by version, with the sources that they are from.

use crate::constants::{constant, instance_type, offset};
use uunwind_elf::Image;
use uunwind_v8::facts::{Facts, Plain, BYTECODES, FACTS_VERSION};

/// The versions that messages name.
pub const SERVED: &str = "11.3 (Node 20)";

/// The layout of a version. `None`: it is not served.
///
/// # Errors
/// Numbers that it has to export are missing.
pub fn of(image: &Image, version: [u16; 4]) -> Option<Result<Facts, String>> {
    let facts = Facts::from_bytes(&[0; core::mem::size_of::<Facts>()])?;
    match version {
        [11, 3, ..] => Some(v11_3(image, Facts { v8: version, ..facts }).ok_or_else(|| {
            let [major, minor, build, patch] = version;
            format!("V8 {major}.{minor}.{build}.{patch}, which does not export its layout")
        })),
        _ => None,
    }
}

/// <https://github.com/v8/v8/tree/11.3.244>
fn v11_3(image: &Image, facts: Facts) -> Option<Facts> {
    let (contexts, below) =
        ([constant(image, "FirstContextType")?, constant(image, "LastContextType")?], |name: &str| {
            constant(image, name).and_then(|below| u32::try_from(below.checked_neg()?).ok())
        });
    let function = instance_type(image, "JSFunction__JS_FUNCTION_TYPE")?;
    let nonstring = constant(image, "FirstNonstringType")?;
    let sizes = bytecode_sizes(image)?;
    let first = offset(image, "ConsString__first__String")?;
    Some(Facts {
        size: core::mem::size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        // code-range.h: VirtualMemoryCage { base, size, page_allocator, reservation { allocator, region } }.
        range_region: 0x28,
        range_copy: 0x38,
        map_type: offset(image, "Map__instance_type__uint16_t")?,
        contexts: [u16::try_from(contexts[0]).ok()?, u16::try_from(contexts[1]).ok()?],
        // instance-type.h: constructors that the runtime treats specially, and classes, follow plain functions.
        functions: [function, function.checked_add(FUNCTION_TYPES)?],
        type_shared: instance_type(image, "SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
        type_script: instance_type(image, "Script__SCRIPT_TYPE")?,
        type_scope_info: instance_type(image, "ScopeInfo__SCOPE_INFO_TYPE")?,
        type_bytecode: instance_type(image, "BytecodeArray__BYTECODE_ARRAY_TYPE")?,
        type_bytes: instance_type(image, "ByteArray__BYTE_ARRAY_TYPE")?,
        type_code: instance_type(image, "Code__CODE_TYPE")?,
        type_array: instance_type(image, "FixedArray__FIXED_ARRAY_TYPE")?,
        type_nonstring: u16::try_from(nonstring).ok()?,
        frame_context: below("off_fp_context")?,
        frame_function: below("off_fp_function")?,
        frame_bytecode: below("off_fp_bytecode_array")?,
        frame_offset: below("off_fp_bytecode_offset")?,
        function_shared: offset(image, "JSFunction__shared__SharedFunctionInfo")?,
        // js-function.tq: the code lies between the feedback cell and the prototype.
        function_code: offset(image, "JSFunction__raw_feedback_cell__FeedbackCell")?.checked_add(8)?,
        shared_name: offset(image, "SharedFunctionInfo__name_or_scope_info__Object")?,
        shared_script: offset(image, "SharedFunctionInfo__script_or_debug_info__HeapObject")?,
        script_source: offset(image, "Script__source__Object")?,
        script_name: offset(image, "Script__name__Object")?,
        script_line_ends: offset(image, "Script__line_ends__Object")?,
        // script.tq: name, then line_offset; line_ends, then id.
        script_line: offset(image, "Script__name__Object")?.checked_add(8)?,
        script_id: offset(image, "Script__line_ends__Object")?.checked_add(8)?,
        // scope-info.tq: flags, parameter_count, context_local_count; then what may be there.
        scope_flags: 8,
        scope_locals: 24,
        scope_first: 32,
        scope_class_bit: 10,
        scope_function_bit: 12,
        scope_inferred_bit: 14,
        string_length: offset(image, "String__length__int32_t")?,
        string_chars: offset(image, "SeqOneByteString__chars__char")?,
        string_first: Some(first).filter(|first| Some(*first) == offset(image, "SlicedString__parent__String"))?,
        // string.tq: resource, resource_data.
        string_data: offset(image, "ExternalString__resource__Object")?.checked_add(8)?,
        string_offset: offset(image, "SlicedString__offset__SMI")?,
        array_length: offset(image, "FixedArrayBase__length__SMI")?,
        array_data: offset(image, "FixedArray__data__uintptr_t")?,
        // bytecode-array.tq: length, constant_pool, handler_table, source_position_table, then five numbers.
        bytecode_positions: 32,
        bytecode_first: 54,
        // code.h: CodeDataContainer of old, with the address of the first instruction and flags.
        code_start: 0x28,
        code_flags: 0x30,
        code_size: 0x38,
        code_offsets: offset(image, "Code__bytecode_offset_table__ByteArray")?,
        code_positions: offset(image, "Code__source_position_table__ByteArray")?,
        code_deoptimization: offset(image, "Code__deoptimization_data__FixedArray")?,
        deopt_literals: u32::try_from(constant(image, "DeoptimizationDataLiteralArrayIndex")?).ok()?,
        deopt_positions: u32::try_from(constant(image, "DeoptimizationDataInliningPositionsIndex")?).ok()?,
        kind_baseline: u32::try_from(constant(image, "CodeKindBaseline")?).ok()?,
        // code-kind.h: BASELINE, MAGLEV, TURBOFAN.
        kind_optimised: u32::try_from(constant(image, "CodeKindBaseline")?).ok()?.checked_add(1)?,
        bytecodes: sizes.0,
        bytecode_sizes: sizes.1,
        ..facts
    })
}

/// Number of instance types of functions after the first one.
const FUNCTION_TYPES: u16 = 20;

/// `Bytecodes::kBytecodeSizes`: one byte for each bytecode, for operands of one, two and four bytes.
fn bytecode_sizes(image: &Image) -> Option<(u32, [[u8; BYTECODES]; 3])> {
    let symbol = image.any_symbol("_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE")?;
    let count = usize::try_from(symbol.size / 3).ok().filter(|count| symbol.size % 3 == 0 && *count <= BYTECODES)?;
    let mut sizes = [[0; BYTECODES]; 3];
    for (scale, sizes) in sizes.iter_mut().enumerate() {
        let at = symbol.address.checked_add((scale * count) as u64)?;
        if !image.read_address(at, sizes.get_mut(..count)?) {
            return None;
        }
    }
    Some((count as u32, sizes))
}
