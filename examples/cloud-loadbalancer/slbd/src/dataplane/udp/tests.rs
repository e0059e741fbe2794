use super::*;

fn target(weights: &[u8]) -> Target {
    let backends = weights.iter().enumerate();
    let backends = backends.map(|(n, weight)| {
        let port = u16::try_from(n).unwrap() + 1;
        (SocketAddr::from(([127, 0, 0, 1], port)), *weight)
    });
    Target {
        backends: backends.collect(),
        access: None,
    }
}

fn ports(target: &Target, turns: usize) -> Vec<u16> {
    (0..turns)
        .map(|turn| target.choose(turn).unwrap().port())
        .collect()
}

#[test]
fn equal_backends_take_turns_and_others_by_weight() {
    assert_eq!(ports(&target(&[100, 100]), 4), [1, 2, 1, 2]);
    assert_eq!(ports(&target(&[1, 2]), 6), [1, 2, 2, 1, 2, 2]);
    assert_eq!(target(&[]).choose(7), None);
}

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Forwards to `backend` from the address that is returned.
async fn forwarding(udp: &Udp, backend: SocketAddr) -> (SocketAddr, AbortOnDropHandle<()>) {
    let socket = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
    let address = socket.local_addr().unwrap();
    let target = Target {
        backends: vec![(backend, 1)],
        access: None,
    };
    let (shared, targets) = (Arc::clone(&udp.shared), watch::channel(target).1);
    let task = async move { forward(&shared, address, socket, &targets).await };
    (address, AbortOnDropHandle::new(tokio::spawn(task)))
}

/// A client of a listener.
fn key(listener: &UdpSocket) -> Key {
    Key {
        listener: listener.local_addr().unwrap(),
        client: SocketAddr::from(([127, 0, 0, 1], 9)),
    }
}

fn add(udp: &Udp, key: Key, client: Client) {
    udp.shared.clients.lock().add(key, Instant::now(), client);
}

/// Waits for other tasks until `condition` holds.
async fn until(mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, holds).await.expect("an end");
}

#[tokio::test]
async fn more_clients_than_sockets_are_served_in_turn() {
    let backend = UdpSocket::bind(LOOPBACK).await.unwrap();
    let udp = Udp::new(2);
    let (address, _task) = forwarding(&udp, backend.local_addr().unwrap()).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(UdpSocket::bind(LOOPBACK).await.unwrap());
    }
    // Twice: the first client comes back after others took its place.
    for client in clients.iter().chain(&clients) {
        client.send_to(b"ask", address).await.unwrap();
        let mut datagram = [0; 8];
        let (length, from) = backend.recv_from(&mut datagram).await.unwrap();
        assert_eq!(&datagram[..length], b"ask");
        backend.send_to(b"answer", from).await.unwrap();
        let length = client.recv(&mut datagram).await.unwrap();
        assert_eq!(&datagram[..length], b"answer");
        assert!(udp.status().clients <= 2);
    }
    assert_eq!(udp.status().clients, 2);
}

#[tokio::test]
async fn a_client_whose_backend_refuses_gives_its_socket_back() {
    let gone = UdpSocket::bind(LOOPBACK).await.unwrap();
    let backend = gone.local_addr().unwrap();
    drop(gone);
    let listener = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
    let udp = Udp::new(2);
    let client = Client::start(&udp.shared, key(&listener), backend, &listener).unwrap();
    let socket = Arc::clone(&client.socket);
    add(&udp, key(&listener), client);
    assert_eq!(udp.status().clients, 1);
    socket.send(b"ask").await.unwrap();
    until(|| udp.status().clients == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_silent_gives_its_socket_back() {
    let backend = UdpSocket::bind(LOOPBACK).await.unwrap();
    let listener = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
    let udp = Udp::new(2);
    let (_states, followed) = watch::channel(Arc::default());
    let running = {
        let udp = udp.clone();
        tokio::spawn(async move { udp.run(followed, CancellationToken::new()).await })
    };
    let backend = backend.local_addr().unwrap();
    let client = Client::start(&udp.shared, key(&listener), backend, &listener).unwrap();
    let own = client.socket.local_addr().unwrap();
    add(&udp, key(&listener), client);
    sleep(IDLE - Duration::from_secs(1)).await;
    assert_eq!(udp.status().clients, 1);
    sleep(SWEEP + Duration::from_secs(1)).await;
    assert_eq!(udp.status().clients, 0);
    until(|| std::net::UdpSocket::bind(own).is_ok()).await;
    running.abort();
}

#[test]
fn lists_decide_which_sources_pass() {
    let mut target = target(&[1]);
    let inside = IpAddr::from([10, 1, 2, 3]);
    let outside = IpAddr::from([11, 1, 2, 3]);
    assert!(target.allows(inside));
    let networks: Vec<Ipv4Net> = vec!["10.0.0.0/8".parse().unwrap()];
    target.access = Some((true, networks.clone()));
    assert!(target.allows(inside) && !target.allows(outside));
    target.access = Some((false, networks));
    assert!(!target.allows(inside) && target.allows(outside));
}

#[tokio::test(start_paused = true)]
async fn a_taken_address_is_shown_until_it_is_free() {
    let taken = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = taken.local_addr().unwrap();
    let udp = Udp::new(2);
    let targets = watch::channel(Target::default()).1;
    let task = listen(Arc::clone(&udp.shared), address, targets);
    let _task = AbortOnDropHandle::new(tokio::spawn(task));
    sleep(AGAIN / 2).await;
    let shown = serde_json::to_value(udp.status()).unwrap();
    let reason = shown["failed"][address.to_string()].as_str().unwrap();
    assert!(reason.contains("in use"), "{reason}");
    drop(taken);
    sleep(AGAIN).await;
    assert!(udp.status().failed.is_empty());
}
