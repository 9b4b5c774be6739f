//! How many builds of a runtime's version the tests try: one for each change, all that the machine has in `ci/nightly`.

/// Whether all builds are tried: with `UU_EVERY_BUILD`, and in campaigns.
pub fn every() -> bool {
    ["UU_EVERY_BUILD", "UU_CAMPAIGNS"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Why a build was left out.
pub const LEFT_OUT: &str = "another build of its version is tried; ci/nightly tries all (UU_EVERY_BUILD=1)";
