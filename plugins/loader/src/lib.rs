//! Finds and opens unwinder DSOs (setup room)
