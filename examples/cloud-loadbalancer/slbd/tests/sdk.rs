//! Both SDKs of the vendor drive the cloud. `tests/sdk/build.sh` installs them and prints the variable that names them.

mod process;

use std::process::Command;

use process::Cloud;

#[test]
fn both_sdks_of_the_vendor_drive_the_cloud() {
    let Some(python) = std::env::var_os("REEVE_SLB_PYTHON") else {
        let required = std::env::var_os("REEVE_REQUIRE_ASSETS").is_some_and(|value| value == "1");
        assert!(
            !required,
            "REEVE_SLB_PYTHON is not set, see tests/sdk/build.sh"
        );
        println!("SKIPPED: REEVE_SLB_PYTHON is not set, see tests/sdk/build.sh");
        return;
    };
    let cloud = Cloud::start(&[]);
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/walk.py"))
        .arg(cloud.api.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}");
    // Seven steps each.
    assert_eq!(said.lines().count(), 14, "{said}");
}
