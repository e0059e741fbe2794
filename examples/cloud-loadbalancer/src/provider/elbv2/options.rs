//! The flags of the provider.

use std::path::PathBuf;
use std::time::Duration;

use reeve_clock::Clock;

use super::{Elbv2, Keys, Place, Source};

/// The options of `--provider=elbv2`. Keys are never flags: other users of the machine see those.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The address of the API. By default that of the region: elasticloadbalancing.REGION.amazonaws.com, by HTTPS.
    #[arg(long, value_name = "URL")]
    elbv2_endpoint: Option<String>,
    /// The region.
    #[arg(long, value_name = "REGION", required_if_eq("provider", "elbv2"))]
    elbv2_region: Option<String>,
    /// The id of the private network (VPC) with the nodes.
    #[arg(long, value_name = "ID", required_if_eq("provider", "elbv2"))]
    elbv2_vpc: Option<String>,
    /// The ids of the subnets of load balancers whose Services have no annotation subnet, separated by commas.
    #[arg(
        long,
        value_name = "IDS",
        value_delimiter = ',',
        required_if_eq("provider", "elbv2")
    )]
    elbv2_subnets: Vec<String>,
    /// The file with the access key, in the format of the vendor's tools; read for every call. Without it the key is in
    /// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
    #[arg(long, value_name = "FILE")]
    elbv2_key_file: Option<PathBuf>,
    /// The file with the certificates of the authorities that the API's certificate is from. Without it, those of the
    /// machine.
    #[arg(long, value_name = "FILE")]
    elbv2_ca_file: Option<PathBuf>,
    /// The seconds until a search shows a load balancer whose creation was not answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    elbv2_visible_within: u64,
}

// === impl Options ===

impl Options {
    /// The provider with these options. `variable` reads the environment.
    ///
    /// # Errors
    /// When a flag is missing, there are no keys, or a file cannot be read.
    pub fn provider(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        clock: Clock,
    ) -> Result<Elbv2, Box<dyn std::error::Error + Send + Sync>> {
        let needed = |flag: &Option<String>, name: &str| {
            flag.clone().ok_or_else(|| format!("--{name} is missing"))
        };
        if self.elbv2_subnets.is_empty() {
            return Err("--elbv2-subnets is missing".into());
        }
        let region = needed(&self.elbv2_region, "elbv2-region")?;
        let endpoint = self.elbv2_endpoint.clone();
        let endpoint = endpoint.unwrap_or_else(|| default_endpoint(&region));
        let keys = match &self.elbv2_key_file {
            Some(file) => Source::File(file.clone()),
            None => Source::Given(
                Keys::from_variables(variable)
                    .map_err(|error| format!("{error}, and there is no --elbv2-key-file"))?,
            ),
        };
        let authorities = self.elbv2_ca_file.as_ref().map(|file| {
            std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
        });
        let place = Place {
            endpoint,
            region,
            vpc: needed(&self.elbv2_vpc, "elbv2-vpc")?,
            subnets: self.elbv2_subnets.clone(),
        };
        let visible_within = Duration::from_secs(self.elbv2_visible_within);
        let authorities = authorities.transpose()?;
        Elbv2::new(place, keys, authorities.as_deref(), visible_within, clock)
    }
}

/// The endpoint of a region. The regions in China have a domain of their own; other partitions need the flag.
fn default_endpoint(region: &str) -> String {
    let end = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://elasticloadbalancing.{region}.amazonaws.com{end}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[arg(long)]
        provider: String,
        #[command(flatten)]
        options: Options,
    }

    fn program(flags: &[&str]) -> Result<Program, String> {
        let flags = ["ccm"].into_iter().chain(flags.iter().copied());
        Program::try_parse_from(flags).map_err(|error| error.to_string())
    }

    const ALL: [&str; 8] = [
        "--provider",
        "elbv2",
        "--elbv2-region",
        "eu-west-1",
        "--elbv2-vpc",
        "vpc-1",
        "--elbv2-subnets",
        "subnet-1,subnet-2",
    ];

    #[test]
    fn the_flags_of_another_provider_need_none_of_these() {
        assert!(program(&["--provider", "slb"]).is_ok());
        let error = program(&ALL[..6]).unwrap_err();
        assert!(error.contains("--elbv2-subnets"), "{error}");
    }

    #[test]
    fn a_region_has_its_endpoint() {
        let domain = |region| default_endpoint(region).replace("https://elasticloadbalancing.", "");
        assert_eq!(domain("eu-west-1"), "eu-west-1.amazonaws.com");
        assert_eq!(domain("cn-north-1"), "cn-north-1.amazonaws.com.cn");
    }

    #[test]
    fn a_provider_has_keys_from_the_environment_or_a_file() {
        let all = program(&ALL).unwrap().options;
        assert_eq!(all.elbv2_subnets, ["subnet-1", "subnet-2"]);
        let none = |_: &str| None;
        let error = all.provider(none, Clock::system()).unwrap_err();
        assert!(error.to_string().contains("--elbv2-key-file"), "{error}");
        let some = |_: &str| Some("hidden".to_owned());
        let provider = all.provider(some, Clock::system()).unwrap();
        let shown = format!("{provider:?}");
        assert!(
            shown.contains("https://elasticloadbalancing.eu-west-1.amazonaws.com/"),
            "{shown}"
        );
        let file = ["--elbv2-key-file", "/nowhere/keys"];
        let with_file = program(&[&ALL[..], &file].concat()).unwrap().options;
        assert!(with_file.provider(none, Clock::system()).is_ok());
        let ca = ["--elbv2-ca-file", "/nowhere/ca"];
        let with_ca = program(&[&ALL[..], &ca].concat()).unwrap().options;
        let error = with_ca.provider(some, Clock::system()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/ca"), "{error}");
    }
}
