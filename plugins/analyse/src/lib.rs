//! Objects to facts, by build-id (setup room)
