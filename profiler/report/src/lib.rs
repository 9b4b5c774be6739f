//! Recording to names, merged stacks, formats
