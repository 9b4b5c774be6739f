//! Tests of the whole: stacks against oracles, faults, storms, house rules
