//! Rings to recording; publishes facts
