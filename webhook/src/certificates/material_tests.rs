//! Contents of the Secret.

use super::*;

fn names() -> Vec<String> {
    ["guard.hbox.svc", "127.0.0.1"].map(str::to_owned).into()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn terms<'a>(
    names: &'a [String],
    lifetimes: &'a Lifetimes,
    trusted: &'a [CertificateDer<'static>],
) -> Terms<'a> {
    Terms {
        names,
        lifetimes,
        trusted,
    }
}

fn next(write: &Write, found: Option<&Material>, seconds: i64) -> Material {
    let lifetimes = Lifetimes::default();
    Material::next(
        write,
        found,
        found,
        &terms(&names(), &lifetimes, &[]),
        at(seconds),
        7,
    )
    .unwrap()
}

#[test]
fn each_write_makes_contents_that_are_read_back_with_the_same_facts() {
    let first = next(&Write::Create, None, 0);
    let announced = next(&Write::Announce, Some(&first), 100);
    let issued = next(&Write::Issue, Some(&announced), 200);
    let old = first.contents.signer;
    let retired = next(&Write::Retire(vec![old]), Some(&issued), 300);
    for (index, material) in [&first, &announced, &issued, &retired]
        .into_iter()
        .enumerate()
    {
        assert_eq!(material.contents.generation, index as u64 + 1);
        assert!(material.contents.leaf.fits);
        let read = Material::read(&material.data(), &names()).unwrap();
        assert_eq!(read.contents, material.contents);
    }
    assert_eq!(
        (first.contents.leaf.issuer, first.contents.leaf.issued),
        (old, at(0))
    );
    assert_eq!(
        (announced.contents.leaf, announced.contents.since),
        (first.contents.leaf, at(100))
    );
    assert_eq!(announced.contents.bundle.len(), 2);
    assert_ne!(announced.contents.signer, old);
    assert_eq!(issued.contents.leaf.issuer, announced.contents.signer);
    assert_eq!(
        (issued.contents.leaf.issued, issued.contents.since),
        (at(200), at(100))
    );
    assert_eq!(retired.contents.bundle.len(), 1);

    let names_of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let confirm = Write::Confirm(vec![old, announced.contents.signer], names_of(&["guard"]));
    let confirmed = next(&confirm, Some(&issued), 250);
    let read = Material::read(&confirmed.data(), &names()).unwrap();
    assert_eq!(read.contents, confirmed.contents);
    assert_eq!(read.contents.confirmed.len(), 2);
    let later = next(&Write::Retire(vec![old]), Some(&read), 300);
    let later = next(&Write::Announce, Some(&later), 310);
    let later = next(&Write::Issue, Some(&later), 320).contents;
    assert_eq!(
        later.confirmed,
        [(announced.contents.signer, names_of(&["guard"]))].into()
    );

    let rolled_back = Material::next(
        &Write::Restore { generation: 5 },
        Some(&first),
        Some(&retired),
        &terms(&names(), &Lifetimes::default(), &[]),
        at(400),
        7,
    );
    let restored = rolled_back.unwrap().contents;
    assert_eq!((restored.generation, restored.since), (5, at(400)));
    assert_eq!(
        (restored.leaf, restored.signer),
        (retired.contents.leaf, retired.contents.signer)
    );
    assert!(restored.authority(old).is_some());
}

#[test]
fn a_leaf_does_not_outlive_its_authority() {
    let lifetimes = Lifetimes::default().authority(Duration::from_secs(100));
    let made = Material::next(
        &Write::Create,
        None,
        None,
        &terms(&names(), &lifetimes, &[]),
        at(0),
        1,
    )
    .unwrap();
    let issued = Material::next(
        &Write::Issue,
        Some(&made),
        None,
        &terms(&names(), &lifetimes, &[]),
        at(40),
        2,
    );
    assert_eq!(made.contents.leaf.expires, at(100));
    assert_eq!(issued.unwrap().contents.leaf.expires, at(100));
}

#[test]
fn replicas_with_different_names_agree_on_one_leaf() {
    let made = next(&Write::Create, None, 0);
    let others = ["guard.hbox.svc".to_owned(), "other.hbox.svc".to_owned()];
    let seen = Material::read(&made.data(), &others).unwrap();
    assert!(!seen.contents.leaf.fits);
    let lifetimes = Lifetimes::default();
    let issued = Material::next(
        &Write::Issue,
        Some(&seen),
        None,
        &terms(&others, &lifetimes, &[]),
        at(10),
        2,
    )
    .unwrap();
    for names in [&others[..], &names()] {
        let read = Material::read(&issued.data(), names).unwrap();
        assert!(read.contents.leaf.fits, "{names:?}");
    }
    // The next regular leaf is for the names of its replica alone.
    let regular = Material::read(&issued.data(), &others).unwrap();
    let regular = next_for(&Write::Issue, &regular, &others);
    let read = Material::read(&regular.data(), &names()).unwrap();
    assert!(!read.contents.leaf.fits);
}

fn next_for(write: &Write, found: &Material, names: &[String]) -> Material {
    let lifetimes = Lifetimes::default();
    Material::next(
        write,
        Some(found),
        None,
        &terms(names, &lifetimes, &[]),
        at(20),
        3,
    )
    .unwrap()
}

#[test]
fn a_first_content_keeps_the_authorities_that_are_trusted_already() {
    let before = next(&Write::Create, None, 0);
    let lifetimes = Lifetimes::default();
    let trusted = &before.bundle;
    let made = Material::next(
        &Write::Create,
        None,
        None,
        &terms(&names(), &lifetimes, trusted),
        at(10),
        2,
    )
    .unwrap();
    assert!(made.contents.authority(before.contents.signer).is_some());
    assert_ne!(made.contents.signer, before.contents.signer);
    let dead = at(0) + lifetimes.authority;
    let later = Material::next(
        &Write::Create,
        None,
        None,
        &terms(&names(), &lifetimes, trusted),
        dead,
        3,
    );
    assert_eq!(later.unwrap().contents.bundle.len(), 1);
}

#[test]
fn the_leaf_is_the_first_certificate_of_its_chain() {
    let made = next(&Write::Create, None, 0);
    let mut data = made.data();
    let chain = [data["tls.crt"].0.clone(), data["ca.crt"].0.clone()].concat();
    data.insert("tls.crt".to_owned(), ByteString(chain));
    let read = Material::read(&data, &names()).unwrap();
    assert_eq!(read.contents, made.contents);
}

#[test]
fn a_leaf_for_fewer_names_does_not_fit() {
    let made = next(&Write::Create, None, 0);
    let more = ["guard.hbox.svc".to_owned(), "other.hbox.svc".to_owned()];
    assert!(
        !Material::read(&made.data(), &more)
            .unwrap()
            .contents
            .leaf
            .fits
    );
    let read = |names: &[String]| {
        Material::read(&made.data(), names)
            .unwrap()
            .contents
            .leaf
            .fits
    };
    assert!(read(&more[..1]) && read(&["127.0.0.1".to_owned()]));
}

#[test]
fn a_damaged_content_is_refused_with_its_reason() {
    let (good, other) = (next(&Write::Create, None, 0), next(&Write::Create, None, 0));
    for (key, value, problem) in [
        ("ca.crt", None, Problem::Unreadable("ca.crt")),
        ("ca.crt", Some(b"no PEM".to_vec()), Problem::NoSigner),
        (
            "ca.crt",
            Some(other.data()["ca.crt"].0.clone()),
            Problem::NoSigner,
        ),
        (
            "ca.key",
            Some(b"-----BEGIN".to_vec()),
            Problem::Unreadable("ca.key"),
        ),
        ("tls.crt", Some(Vec::new()), Problem::Unreadable("tls.crt")),
        (
            "tls.key",
            Some(b"x".to_vec()),
            Problem::Unreadable("tls.key"),
        ),
        (
            "tls.key",
            Some(other.data()["tls.key"].0.clone()),
            Problem::OtherKey,
        ),
        (
            "state.json",
            Some(b"{}".to_vec()),
            Problem::Unreadable("state.json"),
        ),
    ] {
        let mut data = good.data();
        match value {
            Some(value) => data.insert(key.to_owned(), ByteString(value)),
            None => data.remove(key),
        };
        assert_eq!(
            Material::read(&data, &names()).unwrap_err(),
            problem,
            "{key}"
        );
    }
    // A leaf of another authority, with its key.
    let mut data = good.data();
    for key in ["tls.crt", "tls.key"] {
        data.insert(key.to_owned(), other.data()[key].clone());
    }
    assert_eq!(
        Material::read(&data, &names()).unwrap_err(),
        Problem::NoIssuer
    );
    assert_eq!(
        format!("{good:?}").matches("PRIVATE").count(),
        0,
        "keys are not shown"
    );
}

#[test]
fn a_content_of_an_earlier_version_confirms_nothing() {
    let made = next(&Write::Create, None, 0);
    let mut data = made.data();
    let state = br#"{"generation":4,"since":"2027-01-15T08:00:00Z"}"#;
    data.insert("state.json".to_owned(), ByteString(state.to_vec()));
    let read = Material::read(&data, &names()).unwrap().contents;
    assert_eq!((read.generation, read.confirmed.len()), (4, 0));
}

#[test]
fn a_name_that_no_client_could_verify_is_refused_before_it_is_issued_without_end() {
    let first = next(&Write::Create, None, 0);
    let lifetimes = Lifetimes::default();
    for wrong in ["*.example.com", "localhost:9443", "[::1]"] {
        let names = vec!["guard.hbox.svc".to_owned(), wrong.to_owned()];
        for (write, found) in [(Write::Create, None), (Write::Issue, Some(&first))] {
            let terms = terms(&names, &lifetimes, &[]);
            let made = Material::next(&write, found, found, &terms, at(1), 7);
            assert!(matches!(made, Err(Problem::Issue(_))), "{wrong}");
        }
    }
}

#[test]
fn a_content_is_known_by_its_state_whatever_label_its_secret_has() {
    let mut data = next(&Write::Create, None, 0).data();
    assert!(Material::is_ours(&data));
    data.remove("tls.key");
    assert!(Material::is_ours(&data), "damaged");
    data.insert("state.json".to_owned(), ByteString(b"{}".to_vec()));
    assert!(!Material::is_ours(&data));
}
