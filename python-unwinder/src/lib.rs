//! CPython unwinder plugin: signal half
