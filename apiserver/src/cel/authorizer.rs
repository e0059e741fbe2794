//! The variable `authorizer`: the rights of the user that writes, and of service accounts.
//!
//! (apiserver: `pkg/cel/library/authz.go`.)

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::meter::pay;
use crate::names;
use crate::rbac::{Attributes, Decision, Policy, User};

/// The member of the variable that has its functions. No expression can name it.
const FUNCTIONS: &str = "@functions";

/// Answers for the rights of one user.
#[derive(Clone, Debug)]
pub(crate) struct Authorizer {
    /// `None` allows everything.
    policy: Option<Arc<Policy>>,
    user: Arc<User>,
    /// The request that is admitted.
    request: Attributes,
}

/// A value of the library: a question in the making, or its answer.
#[derive(Clone, Debug)]
struct Check {
    policy: Option<Arc<Policy>>,
    user: Arc<User>,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    Group(String),
    Question(Attributes),
    Answer(Decision),
}

/// The cost of a question to the policy. (apiserver: `CostEstimator` of the library `authz`.)
const CHECK: u64 = 350_000;

type Answer = Result<CelValue, ExecutionError>;

// === impl Authorizer ===

impl Authorizer {
    pub(crate) fn new(policy: Option<Arc<Policy>>, user: &User, request: Attributes) -> Self {
        Self {
            policy,
            user: Arc::new(user.clone()),
            request,
        }
    }

    /// The value of the variable.
    pub(super) fn to_cel(&self) -> CelValue {
        let at = |stage| {
            Check {
                policy: self.policy.clone(),
                user: self.user.clone(),
                stage,
            }
            .into_cel()
        };
        let key = |name: &str| Key::String(Arc::new(name.to_owned()));
        let members = HashMap::from([
            (key(FUNCTIONS), at(Stage::Start)),
            (
                key("requestResource"),
                at(Stage::Question(self.request.clone())),
            ),
        ]);
        CelValue::Map(Map {
            map: Arc::new(members),
        })
    }
}

// === impl Check ===

impl Check {
    fn into_cel(self) -> CelValue {
        CelValue::Opaque(Arc::new(self))
    }

    fn at(&self, stage: Stage) -> Answer {
        Ok(Self {
            stage,
            ..self.clone()
        }
        .into_cel())
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        match &self.policy {
            Some(policy) => policy.authorize(&self.user, attributes),
            None => Decision {
                allowed: true,
                reason: String::new(),
            },
        }
    }
}

impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.stage == other.stage
    }
}

impl Eq for Check {}

impl Opaque for Check {
    fn runtime_type_name(&self) -> &str {
        match self.stage {
            Stage::Start => "kubernetes.authorization.Authorizer",
            Stage::Group(_) => "kubernetes.authorization.GroupCheck",
            Stage::Question(_) => "kubernetes.authorization.ResourceCheck",
            Stage::Answer(_) => "kubernetes.authorization.Decision",
        }
    }
}

/// Adds the functions of the library. `errored` and `error` have no answer to give: the policy always has one.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("path", path);
    context.add_function("group", group);
    context.add_function("serviceAccount", service_account);
    context.add_function("resource", resource);
    context.add_function("subresource", subresource);
    context.add_function("namespace", namespace);
    context.add_function("name", name);
    context.add_function("fieldSelector", selector);
    context.add_function("labelSelector", selector);
    context.add_function("check", check);
    context.add_function("allowed", allowed);
    context.add_function("reason", reason);
    context.add_function("errored", errored);
    context.add_function("error", error);
}

/// The library's value in a target of a function.
fn of(target: &CelValue) -> Result<Check, ExecutionError> {
    let found = match target {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Check>().cloned(),
        CelValue::Map(map) => {
            let key = Key::String(Arc::new(FUNCTIONS.to_owned()));
            return map
                .map
                .get(&key)
                .map_or(Err(ExecutionError::NoSuchOverload), of);
        }
        _ => None,
    };
    found.ok_or(ExecutionError::NoSuchOverload)
}

fn question(target: &CelValue) -> Result<(Check, Attributes), ExecutionError> {
    let check = of(target)?;
    match &check.stage {
        Stage::Question(attributes) => {
            let attributes = attributes.clone();
            Ok((check, attributes))
        }
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn decision(target: &CelValue) -> Result<Decision, ExecutionError> {
    match of(target)?.stage {
        Stage::Answer(decision) => Ok(decision),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn invalid(function: &str, why: &str) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

fn path(This(target): This<CelValue>, path: Arc<String>) -> Answer {
    let check = of(&target)?;
    if check.stage != Stage::Start {
        return Err(ExecutionError::NoSuchOverload);
    }
    if path.trim().is_empty() {
        return Err(invalid("path", "path must not be empty"));
    }
    check.at(Stage::Question(Attributes {
        path: path.to_string(),
        ..Attributes::default()
    }))
}

fn group(This(target): This<CelValue>, group: Arc<String>) -> Answer {
    let check = of(&target)?;
    match check.stage {
        Stage::Start => check.at(Stage::Group(group.to_string())),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn service_account(
    This(target): This<CelValue>,
    namespace: Arc<String>,
    name: Arc<String>,
) -> Answer {
    let check = of(&target)?;
    if check.stage != Stage::Start {
        return Err(ExecutionError::NoSuchOverload);
    }
    if !names::dns_subdomain(&name).is_empty() {
        return Err(invalid("serviceAccount", "Invalid service account name"));
    }
    if !names::dns_label(&namespace).is_empty() {
        return Err(invalid(
            "serviceAccount",
            "Invalid service account namespace",
        ));
    }
    Ok(Check {
        user: Arc::new(User::service_account(&namespace, &name, "")),
        ..check
    }
    .into_cel())
}

fn resource(This(target): This<CelValue>, resource: Arc<String>) -> Answer {
    let check = of(&target)?;
    let Stage::Group(group) = &check.stage else {
        return Err(ExecutionError::NoSuchOverload);
    };
    if resource.trim().is_empty() {
        return Err(invalid("resource", "resource must not be empty"));
    }
    let group = group.clone();
    check.at(Stage::Question(Attributes {
        group,
        version: "*".to_owned(),
        resource: resource.to_string(),
        ..Attributes::default()
    }))
}

fn subresource(This(target): This<CelValue>, subresource: Arc<String>) -> Answer {
    let (check, attributes) = question(&target)?;
    check.at(Stage::Question(Attributes {
        subresource: subresource.to_string(),
        ..attributes
    }))
}

fn namespace(This(target): This<CelValue>, namespace: Arc<String>) -> Answer {
    let (check, attributes) = question(&target)?;
    check.at(Stage::Question(Attributes {
        namespace: namespace.to_string(),
        ..attributes
    }))
}

fn name(This(target): This<CelValue>, name: Arc<String>) -> Answer {
    let (check, attributes) = question(&target)?;
    check.at(Stage::Question(Attributes {
        name: name.to_string(),
        ..attributes
    }))
}

/// RBAC does not look at selectors.
fn selector(This(target): This<CelValue>, _selector: Arc<String>) -> Answer {
    let (check, attributes) = question(&target)?;
    check.at(Stage::Question(attributes))
}

fn check(This(target): This<CelValue>, verb: Arc<String>) -> Answer {
    pay(CHECK)?;
    let (check, attributes) = question(&target)?;
    let decided = check.decide(&Attributes {
        verb: verb.to_string(),
        ..attributes
    });
    check.at(Stage::Answer(decided))
}

fn allowed(This(target): This<CelValue>) -> Answer {
    Ok(CelValue::Bool(decision(&target)?.allowed))
}

fn reason(This(target): This<CelValue>) -> Answer {
    Ok(CelValue::String(Arc::new(decision(&target)?.reason)))
}

fn errored(This(target): This<CelValue>) -> Answer {
    decision(&target).map(|_| CelValue::Bool(false))
}

fn error(This(target): This<CelValue>) -> Answer {
    decision(&target).map(|_| CelValue::String(Arc::default()))
}
