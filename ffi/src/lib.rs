//! libuu.so: the home of a process's one registry
