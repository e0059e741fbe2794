//! The number of cases of a property test.

use proptest::prelude::ProptestConfig;

/// `default` cases, or the number in `PROPTEST_CASES`.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}
