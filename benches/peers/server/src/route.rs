//! The answer to each request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use peer_measure::usage::Cpu;

use crate::burst::Burst;
use crate::format::{Form, Kind};
use crate::list::List;
use crate::watch::Watch;
use crate::world::{Watching, World};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Query = HashMap<String, String>;

/// Answers a request.
pub(crate) fn answer<B>(world: &Arc<World>, request: &Request<B>) -> Answer {
    let query: Query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect();
    let path = request.uri().path();
    if let Some(order) = path.strip_prefix("/control/") {
        if request.method() != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "orders need POST");
        }
        return match control(world, order, &query) {
            Ok(text) => text_answer(StatusCode::OK, text),
            Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
        };
    }
    if let Some((kind, number)) = status(path) {
        return match request.method() {
            &Method::PATCH => write(world, kind, number),
            _ => refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "a status accepts only PATCH",
            ),
        };
    }
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.path() == path) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "the server has the lists of configmaps, pods and ipblocks, and the status of each object",
        );
    };
    if request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "objects are read-only");
    }
    let accept = request
        .headers()
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let Some(form) = form(world, kind, accept.unwrap_or("*/*")) else {
        return refuse(
            StatusCode::NOT_ACCEPTABLE,
            "the server has JSON and protobuf",
        );
    };
    let watch = query
        .get("watch")
        .is_some_and(|watch| watch == "true" || watch == "1");
    match read(world, kind, form, watch, &query) {
        Ok(body) => {
            let mut answer = Response::new(body);
            let content_type = form.content_type(watch).parse().expect("a media type");
            answer.headers_mut().insert(CONTENT_TYPE, content_type);
            answer
        }
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

/// The kind and the number of the object with this status.
fn status(path: &str) -> Option<(Kind, usize)> {
    let (group, object) = path.strip_suffix("/status")?.split_once("/namespaces/")?;
    let mut parts = object.split('/').skip(1);
    let (plural, name) = (parts.next()?, parts.next()?);
    let number = name.strip_prefix("name-")?.parse().ok()?;
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|kind| kind.path().strip_suffix(plural) == Some(&format!("{group}/")))?;
    parts.next().is_none().then_some((kind, number))
}

/// Any patch is a change; its content is ignored.
fn write(world: &Arc<World>, kind: Kind, number: usize) -> Answer {
    let Some(object) = world.stage(kind).update(|state| state.touch(number)) else {
        return refuse(StatusCode::NOT_FOUND, "there is no object of this number");
    };
    let form = Form {
        protobuf: false,
        metadata: false,
    };
    let format = world.formats.get(kind, form).expect("JSON of every kind");
    let mut body = BytesMut::new();
    format.write_object(object, &mut body);
    let mut answer = Response::new(Full::from(body.freeze()).boxed_unsync());
    let json = "application/json".parse().expect("a media type");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

fn read(
    world: &Arc<World>,
    kind: Kind,
    form: Form,
    watch: bool,
    query: &Query,
) -> Result<UnsyncBoxBody<Bytes, Infallible>, String> {
    if watch {
        let streamed = query
            .get("sendInitialEvents")
            .is_some_and(|send| send == "true");
        let version = (!streamed)
            .then(|| number(query, "resourceVersion", None))
            .transpose()?;
        let watching = Watching::new(world, kind);
        return Ok(Watch::new(watching, form, version).boxed_unsync());
    }
    // A real server answers a list that may be old from its cache, in one piece at any limit.
    let whole = query
        .get("resourceVersion")
        .is_some_and(|version| version == "0");
    let limit = if whole {
        0
    } else {
        number(query, "limit", Some(0))?
    };
    let limit = if limit == 0 {
        usize::MAX
    } else {
        limit as usize
    };
    let first = number(query, "continue", Some(0))? as usize;
    Ok(List::new(world, kind, form, first, limit).boxed_unsync())
}

/// Carries out an order.
fn control(world: &Arc<World>, order: &str, query: &Query) -> Result<String, String> {
    if order == "cpu" {
        return Ok(format!("{}", Cpu::now().all));
    }
    let name = query.get("kind").map(String::as_str).unwrap_or_default();
    let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == name);
    let kind = kind.ok_or_else(|| format!("kind={name}: configmaps, pods or ipblocks"))?;
    let stage = world.stage(kind);
    match order {
        "reset" => {
            let count = number(query, "n", None)? as usize;
            let version = stage.update(|state| {
                state.reset(count);
                state.version
            });
            return Ok(version.to_string());
        }
        "burst" => {
            if stage.read(|state| state.objects.is_empty()) {
                return Err("there is no object to change".to_owned());
            }
            Burst {
                kind,
                count: number(query, "n", None)? as usize,
                start: number(query, "start", Some(0))? as usize,
                rate: number(query, "rate", Some(0))? as f64,
                watches: number(query, "watches", Some(1))? as usize,
            }
            .spawn(world);
        }
        "expire" => {
            let touch = number(query, "touch", Some(0))? == 1;
            stage.update(|state| state.expire(touch));
        }
        "watches" => return Ok(stage.watches().to_string()),
        _ => return Err(format!("{order}: reset, burst, expire, watches or cpu")),
    }
    Ok("done".to_owned())
}

/// A number of the query, or its default.
fn number(query: &Query, name: &str, without: Option<u64>) -> Result<u64, String> {
    match query.get(name).filter(|text| !text.is_empty()) {
        None => without.ok_or_else(|| format!("{name} is missing")),
        Some(text) => text
            .parse()
            .map_err(|_| format!("{name}={text}: not a number")),
    }
}

/// The first form in the client's list that the server has.
fn form(world: &World, kind: Kind, accept: &str) -> Option<Form> {
    accept.split(',').find_map(|media| {
        let mut parts = media.split(';').map(str::trim);
        let protobuf = match parts.next()? {
            "application/json" | "application/*" | "*/*" => false,
            "application/vnd.kubernetes.protobuf" => true,
            _ => return None,
        };
        let view = parts.find_map(|part| part.strip_prefix("as="));
        let metadata = match view {
            None => false,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => true,
            Some(_) => return None,
        };
        let form = Form { protobuf, metadata };
        world.formats.get(kind, form).map(|_| form)
    })
}

fn text_answer(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn refuse(status: StatusCode, message: &str) -> Answer {
    let code = status.as_u16();
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","code":{code}}}"#
    );
    let mut answer = text_answer(status, text);
    let json = "application/json".parse().expect("a media type");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, path: &str, accept: &str) -> (Arc<World>, Answer) {
        let world = Arc::new(World::new());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, accept);
        let answer = answer(&world, &request.body(()).unwrap());
        (world, answer)
    }

    #[test]
    fn the_first_form_that_there_is_is_sent() {
        for (path, accept, expected) in [
            (
                "/api/v1/pods",
                "application/vnd.kubernetes.protobuf,application/json",
                "application/vnd.kubernetes.protobuf",
            ),
            (
                "/apis/ops.example.io/v1/ipblocks",
                "application/vnd.kubernetes.protobuf,application/json",
                "application/json",
            ),
            (
                "/api/v1/pods",
                "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
                "application/json",
            ),
            (
                "/api/v1/pods?watch=1&resourceVersion=1000000000",
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ),
        ] {
            let (_, answer) = asked(Method::GET, path, accept);
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert_eq!(answer.headers()[CONTENT_TYPE], expected, "{path} {accept}");
        }
    }

    #[test]
    fn a_patch_of_a_status_is_a_change() {
        const OBJECT: &str = "/apis/ops.example.io/v1/namespaces/ns-0007/ipblocks/name-0000000007";
        let world = Arc::new(World::new());
        let stage = world.stage(Kind::IpBlock);
        stage.update(|state| state.reset(8));
        let before = stage.read(|state| state.version);
        let asked = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path);
            answer(&world, &request.body(()).unwrap()).status()
        };
        let path = format!("{OBJECT}/status");
        assert_eq!(asked(Method::PATCH, &path), StatusCode::OK);
        stage.read(|state| {
            let change = state.changes.last().unwrap();
            assert_eq!((change.number, change.version), (7, before + 1));
        });
        assert_eq!(asked(Method::PUT, &path), StatusCode::METHOD_NOT_ALLOWED);
        for path in [
            OBJECT,
            "/apis/ops.example.io/v1/namespaces/ns-0008/ipblocks/name-0000000008/status",
            "/api/v1/namespaces/ns-0007/ipblocks/name-0000000007/status",
        ] {
            assert_eq!(asked(Method::PATCH, path), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn orders_are_obeyed_or_refused() {
        let (world, answer) = asked(Method::POST, "/control/reset?kind=pods&n=12", "*/*");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(world.stage(Kind::Pod).read(|state| state.objects.len()), 12);
        for path in [
            "/control/reset?kind=pods",
            "/control/reset?kind=pod&n=1",
            "/control/burst?kind=pods&n=1",
        ] {
            assert_eq!(
                asked(Method::POST, path, "*/*").1.status(),
                StatusCode::BAD_REQUEST
            );
        }
        assert_eq!(
            asked(Method::GET, "/api/v1/nodes", "*/*").1.status(),
            StatusCode::NOT_FOUND
        );
    }
}
