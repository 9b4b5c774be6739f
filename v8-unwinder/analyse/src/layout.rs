//! The structures: by V8's own numbers where it exports them, else by version, with the sources that they are from.

use crate::constants::{constant, instance_type, offset};
use crate::isolate;
use uunwind_elf::Image;
use uunwind_v8::facts::{Facts, Plain, BYTECODES, FACTS_VERSION, OPCODES, OPCODE_BEGIN, OPCODE_FRAME, OPCODE_FUNCTION};

/// The versions that messages name.
pub const SERVED: &str = "11.3 (Node 20), 12.4 (Node 22), 13.6 (Node 24) and 14.6 (Node 26)";

/// The layout of a version. `None`: it is not served.
///
/// # Errors
/// Numbers that it has to export are missing.
pub fn of(image: &Image, version: [u16; 4]) -> Option<Result<Facts, String>> {
    let own = match version {
        [11, 3, ..] => v11_3,
        [12, 4, ..] => v12_4,
        [13, 6, ..] => v13_6,
        [14, 6, ..] => v14_6,
        _ => return None,
    };
    let facts = common(image).and_then(|facts| own(image, Facts { v8: version, ..facts }));
    Some(facts.ok_or_else(|| {
        let [major, minor, build, patch] = version;
        format!("V8 {major}.{minor}.{build}.{patch}, which does not export its layout")
    }))
}

/// What all versions export, and what has not changed.
fn common(image: &Image) -> Option<Facts> {
    let facts = Facts::from_bytes(&[0; core::mem::size_of::<Facts>()])?;
    let below = |name: &str| constant(image, name).and_then(|below| u32::try_from(below.checked_neg()?).ok());
    let number = |name: &str| constant(image, name).and_then(|number| u16::try_from(number).ok());
    let function = instance_type(image, "JSFunction__JS_FUNCTION_TYPE")?;
    let first = offset(image, "ConsString__first__String")?;
    let sizes = bytecode_sizes(image)?;
    let baseline = u32::try_from(constant(image, "CodeKindBaseline")?).ok()?;
    Some(Facts {
        size: core::mem::size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        // code-range.h: VirtualMemoryCage { base, size, page_allocator, reservation { allocator, region } }.
        range_region: 0x28,
        range_copy: 0x38,
        map_type: offset(image, "Map__instance_type__uint16_t")?,
        contexts: [number("FirstContextType")?, number("LastContextType")?],
        // instance-type.h: constructors that the runtime treats specially, and classes, follow plain functions.
        functions: [function, number("LastJSFunctionType").unwrap_or(function.checked_add(FUNCTION_TYPES)?)],
        type_shared: instance_type(image, "SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
        type_script: instance_type(image, "Script__SCRIPT_TYPE")?,
        type_scope_info: instance_type(image, "ScopeInfo__SCOPE_INFO_TYPE")?,
        type_bytecode: instance_type(image, "BytecodeArray__BYTECODE_ARRAY_TYPE")?,
        type_bytes: instance_type(image, "ByteArray__BYTE_ARRAY_TYPE")?,
        type_inlining: instance_type(image, "ByteArray__BYTE_ARRAY_TYPE")?,
        type_code: instance_type(image, "Code__CODE_TYPE")?,
        type_array: instance_type(image, "FixedArray__FIXED_ARRAY_TYPE")?,
        type_nonstring: number("FirstNonstringType")?,
        frame_context: below("off_fp_context")?,
        frame_function: below("off_fp_function")?,
        frame_bytecode: below("off_fp_bytecode_array")?,
        frame_offset: below("off_fp_bytecode_offset")?,
        function_shared: offset(image, "JSFunction__shared__SharedFunctionInfo")?,
        script_source: offset(image, "Script__source__Object")?,
        script_name: offset(image, "Script__name__Object")?,
        script_line_ends: offset(image, "Script__line_ends__Object")?,
        // script.tq: name, then line_offset; line_ends, then id.
        script_line: offset(image, "Script__name__Object")?.checked_add(8)?,
        script_id: offset(image, "Script__line_ends__Object")?.checked_add(8)?,
        // scope-info.tq: flags (a small integer), parameter_count, context_local_count; then what may be there.
        scope_flags: 12,
        scope_module: 3,
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
        kind_baseline: baseline,
        // code-kind.h: BASELINE, MAGLEV, TURBOFAN.
        kind_maglev: baseline.checked_add(1)?,
        bytecodes: sizes.0,
        bytecode_sizes: sizes.1,
        ..facts
    })
}

/// <https://github.com/v8/v8/tree/11.3.244>
fn v11_3(image: &Image, facts: Facts) -> Option<Facts> {
    Some(Facts {
        // js-function.tq: the code lies between the feedback cell and the prototype.
        function_code: offset(image, "JSFunction__raw_feedback_cell__FeedbackCell")?.checked_add(8)?,
        shared_name: offset(image, "SharedFunctionInfo__name_or_scope_info__Object")?,
        shared_script: offset(image, "SharedFunctionInfo__script_or_debug_info__HeapObject")?,
        // bytecode-array.tq: length, constant_pool, handler_table, source_position_table, then five numbers.
        bytecode_positions: 32,
        bytecode_first: 54,
        // code.h: CodeDataContainer of old, with the address of the first instruction and flags.
        code_start: 0x28,
        code_object: 8,
        code_flags: 0x30,
        code_size: 0x38,
        code_offsets: offset(image, "Code__bytecode_offset_table__ByteArray")?,
        code_positions: offset(image, "Code__source_position_table__ByteArray")?,
        code_deoptimization: offset(image, "Code__deoptimization_data__FixedArray")?,
        ..deoptimization(image, facts)?
    })
}

/// <https://github.com/v8/v8/tree/12.4.254>
fn v12_4(image: &Image, facts: Facts) -> Option<Facts> {
    Some(Facts {
        function_code: offset(image, "JSFunction__code__Tagged_Code_")?,
        shared_name: offset(image, "SharedFunctionInfo__name_or_scope_info__Tagged_Object_")?,
        shared_script: offset(image, "SharedFunctionInfo__script__Tagged_HeapObject_")?,
        type_array: instance_type(image, "TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE")?,
        ..trusted(image, facts)?
    })
}

/// <https://github.com/v8/v8/tree/13.6.233>
fn v13_6(image: &Image, facts: Facts) -> Option<Facts> {
    let trusted = trusted(image, facts)?;
    let (opcode_count, opcodes) = opcodes(&OPCODES_13_6)?;
    Some(Facts {
        // js-function.tq: properties, elements, then the handle.
        function_code: offset(image, "JSFunction__shared__SharedFunctionInfo")?.checked_sub(8)?,
        isolate_dispatch: isolate::dispatch_table(image)?,
        shared_name: offset(image, "SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_")?,
        shared_script: offset(image, "SharedFunctionInfo__script__Tagged_HeapObject_")?,
        // scope-info.tq: flags (32 bits), parameter_count, context_local_count, position_info.
        scope_flags: 8,
        scope_module: 5,
        scope_first: 48,
        scope_positions: 32,
        type_inlining: trusted.type_bytes,
        type_array: instance_type(image, "ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE")?,
        // safepoint-table.h: stack_slots, length, entry_configuration.
        safepoint_length: 4,
        // deoptimization-data.h: protected_literal_array, literal_array; inlining_positions, deopt_exit_start,
        // eager_deopt_count, lazy_deopt_count.
        deopt_bytecodes: trusted.deopt_literals.checked_sub(1)?,
        deopt_entries: trusted.deopt_positions.checked_add(4)?,
        opcode_count,
        opcodes,
        ..trusted
    })
}

/// As 13.6, but for tables of source positions; the numbers of operands of its opcodes are those of 13.6.
fn v14_6(image: &Image, facts: Facts) -> Option<Facts> {
    Some(Facts { position_flags: 2, ..v13_6(image, facts)? })
}

/// Since V8 12: what compiled code depends on is in objects that scripts cannot change, and lies in another order.
fn trusted(image: &Image, facts: Facts) -> Option<Facts> {
    let wrapper = offset(image, "Code__wrapper__Tagged_CodeWrapper_")?;
    Some(Facts {
        type_bytes: instance_type(image, "TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE")?,
        // bytecode-array.h: length, wrapper, source_position_table.
        bytecode_positions: offset(image, "BytecodeArray__wrapper__Tagged_BytecodeWrapper_")?.checked_add(8)?,
        bytecode_first: offset(image, "BytecodeArray__data__uintptr_t")?,
        code_start: offset(image, "Code__instruction_start__Address")?,
        // instruction-stream.h: code, relocation_info, size.
        code_object: 24,
        code_flags: offset(image, "Code__flags__uint32_t")?,
        code_size: offset(image, "Code__instruction_size__int")?,
        // code.h: deoptimization_data_or_interpreter_data, position_table, wrapper.
        code_offsets: wrapper.checked_sub(8)?,
        code_positions: wrapper.checked_sub(8)?,
        code_deoptimization: wrapper.checked_sub(16)?,
        ..deoptimization(image, facts)?
    })
}

/// Where optimised code has what was inlined.
fn deoptimization(image: &Image, facts: Facts) -> Option<Facts> {
    let index = |name: &str| constant(image, name).and_then(|index| u32::try_from(index).ok());
    Some(Facts {
        deopt_literals: index("DeoptimizationDataLiteralArrayIndex")?,
        deopt_positions: index("DeoptimizationDataInliningPositionsIndex")?,
        ..facts
    })
}

/// `TRANSLATION_OPCODE_LIST`
/// (<https://github.com/v8/v8/blob/13.6.233/src/deoptimizer/translation-opcode.h>), in its order: what an opcode is, and
/// how many of the kind there are.
const OPCODES_13_6: [(u8, usize); 18] = [
    // INTERPRETED_FRAME_WITH_RETURN and _WITHOUT_RETURN.
    (OPCODE_FUNCTION | OPCODE_FRAME | 6, 1),
    (OPCODE_FUNCTION | OPCODE_FRAME | 4, 1),
    // Frames of builtins.
    (OPCODE_FRAME | 3, 2),
    (OPCODE_FRAME | 2, 1),
    (OPCODE_FRAME | 1, 1),
    (OPCODE_FRAME | 3, 1),
    (OPCODE_FRAME | 4, 1),
    (OPCODE_FRAME | 3, 3),
    // ARGUMENTS_ELEMENTS, ARGUMENTS_LENGTH, REST_LENGTH.
    (1, 1),
    (0, 2),
    // BEGIN_WITHOUT_FEEDBACK and BEGIN_WITH_FEEDBACK.
    (OPCODE_BEGIN | 3, 2),
    // Values, such as STRING_CONCAT and OPTIMIZED_OUT (0).
    (1, 3),
    (0, 1),
    (1, 17),
    (0, 1),
    (1, 5),
    // UPDATE_FEEDBACK, MATCH_PREVIOUS_TRANSLATION.
    (2, 1),
    (1, 1),
];

/// The number of opcodes in a list, and each of them.
fn opcodes(list: &[(u8, usize)]) -> Option<(u16, [u8; OPCODES])> {
    let each = list.iter().flat_map(|(opcode, count)| std::iter::repeat_n(*opcode, *count));
    let mut opcodes = [0; OPCODES];
    let count = each.clone().count();
    opcodes.get_mut(..count)?.iter_mut().zip(each).for_each(|(to, opcode)| *to = opcode);
    Some((u16::try_from(count).ok()?, opcodes))
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
