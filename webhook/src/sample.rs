//! The number of random cases of the property tests.

use proptest::test_runner::Config;

/// `default` random cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(default: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}
