//! CPython unwinder plugin: finds its facts in ELF files
