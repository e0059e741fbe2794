//! The provider of Elastic Load Balancing against moto, over TCP.

mod killed;
mod provider;
mod proxy;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cloud_loadbalancer::provider::elbv2::{Elbv2, Keys, Place, Source};
use reeve_apiserver::{assets, free_port};
use reeve_clock::Clock;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use proxy::{Point, Proxy};

/// The time for moto to start. It takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The region of all tests. moto gives subnets to regions that exist only.
const REGION: &str = "eu-west-1";

/// A server of moto, killed when this is dropped.
struct Moto {
    process: Child,
    address: SocketAddr,
    accounts: AtomicU64,
}

/// An account of moto, and the proxy in front of it.
struct Account {
    moto: Arc<Moto>,
    id: String,
    proxy: Proxy,
    others: Vec<Proxy>,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// === impl Moto ===

impl Moto {
    /// `None` if it is not installed.
    async fn start() -> Option<Arc<Self>> {
        let remedy = "examples/cloud-loadbalancer/tests/moto/build.sh sets it";
        let python: PathBuf = assets::program("REEVE_MOTO_PYTHON", remedy)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let process = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p"])
            .arg(address.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let moto = Self {
            process: process.unwrap(),
            address,
            accounts: AtomicU64::new(0),
        };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).await.is_err() {
            assert!(Instant::now() < until, "moto does not listen");
            sleep(Duration::from_millis(50)).await;
        }
        Some(Arc::new(moto))
    }

    /// An account of its own, which is an empty cloud, behind a proxy that holds the call of `point`.
    async fn account(self: &Arc<Self>, point: Option<Point>) -> Account {
        let number = self.accounts.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:012}", 100_000_000_000 + number);
        Account {
            proxy: Proxy::start(self.address, &id, point).await,
            moto: Arc::clone(self),
            others: Vec::new(),
            id,
        }
    }
}

// === impl Account ===

impl Account {
    /// A private network and one of its subnets.
    async fn network(&self) -> (String, String) {
        let form = "Action=DescribeSubnets&Version=2016-11-15";
        let text = self.raw("ec2", form).await;
        let part = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>")).expect(&text);
            let (value, _) = rest.split_once('<').unwrap();
            value.to_owned()
        };
        (part("vpcId"), part("subnetId"))
    }

    /// The ARN of a load balancer.
    async fn arn_of(&self, name: &str) -> String {
        let form = format!("Action=DescribeLoadBalancers&Version=2015-12-01&Names.member.1={name}");
        let text = self.raw("elasticloadbalancing", &form).await;
        let (_, rest) = text.split_once("<LoadBalancerArn>").expect(&text);
        rest.split_once('<').unwrap().0.to_owned()
    }

    /// The number of target groups, whatever their tags.
    async fn target_groups(&self) -> usize {
        let form = "Action=DescribeTargetGroups&Version=2015-12-01";
        let text = self.raw("elasticloadbalancing", form).await;
        text.matches("<TargetGroupArn>").count()
    }

    /// The answer of moto to a call with the shape of a signature, which it does not check, past the proxy.
    async fn raw(&self, service: &str, form: &str) -> String {
        let scope = format!("Credential=id/20260101/{REGION}/{service}/aws4_request");
        let authorization = format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=none");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client
            .post(format!("http://{}/", self.moto.address))
            .header("authorization", authorization)
            .header(proxy::ACCOUNT_HEADER, &self.id)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.to_owned());
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{status}: {text}");
        text
    }

    async fn provider(&self) -> Elbv2 {
        self.provider_at(self.proxy.address).await
    }

    /// A provider whose calls are not those that the proxy counts and holds.
    async fn direct(&mut self) -> Elbv2 {
        let other = Proxy::start(self.moto.address, &self.id, None).await;
        let provider = self.provider_at(other.address).await;
        self.others.push(other);
        provider
    }

    async fn provider_at(&self, address: SocketAddr) -> Elbv2 {
        let (vpc, subnet) = self.network().await;
        let place = Place {
            endpoint: format!("http://{address}"),
            region: REGION.to_owned(),
            vpc,
            subnets: vec![subnet],
        };
        let keys = Source::Given(Keys {
            id: "id".to_owned(),
            secret: "secret".to_owned(),
            token: Some("session".to_owned()),
        });
        Elbv2::new(place, keys, None, Duration::from_secs(1), Clock::system()).unwrap()
    }
}
