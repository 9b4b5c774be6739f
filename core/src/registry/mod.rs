//! Windows of code that no loaded object covers.
