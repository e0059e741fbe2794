//! Both SDKs of the vendor drive the cloud. `tests/sdk/build.sh` installs them and prints the variable that names them.

use std::process::Command;

use reeve_apiserver::assets;

use crate::process::Cloud;
use crate::tls::pair;

#[test]
fn both_sdks_of_the_vendor_drive_the_cloud() {
    let remedy = "examples/cloud-loadbalancer/slbd/tests/sdk/build.sh sets it";
    let Some(python) = assets::program("REEVE_SLB_PYTHON", remedy) else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("slbd-sdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = pair(&["www.example.com"]);
    let files = [
        (folder.join("a.crt"), certificate),
        (folder.join("a.key"), key),
    ];
    for (file, text) in &files {
        std::fs::write(file, text).unwrap();
    }
    let cloud = Cloud::start(&[]);
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/walk.py"))
        .arg(cloud.api.to_string())
        .args(files.map(|(file, _)| file))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}");
    // Eight steps each.
    assert_eq!(said.lines().count(), 16, "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}
