//! DingTalk: https://open.dingtalk.com/document/orgapp/custom-robot-access. WeCom:
//! https://developer.work.weixin.qq.com/document/path/91770.

use http::StatusCode;
use serde_json::{Value, json};

use super::SIGNING;
use super::server::{Checked, Posted, Reply, demand, is_current, is_signed, only, text};

/// Both answer 200 with a code.
fn answer(code: i64, message: &str) -> Reply {
    let answer = json!({"errcode": code, "errmsg": message});
    Reply::json(StatusCode::OK, &answer)
}

pub(super) fn dingtalk(posted: &Posted) -> Checked {
    if posted.path != "/robot/send" || has_no(posted, "access_token") {
        return Err(answer(400_101, "access_token is not exist"));
    }
    if !dingtalk_is_signed(posted) {
        return Err(answer(310_000, "sign not match"));
    }
    if posted.body.len() > 20_000 {
        return Err(answer(460_101, "message too long, exceed 20000 bytes"));
    }
    let missing = |why: String| answer(40_035, &format!("param error: {why}"));
    let body = posted.json("application/json").map_err(missing)?;
    match body["msgtype"].as_str() {
        Some("text") => only(&body, &["msgtype", "text", "at"])
            .and_then(|()| text(&body["text"], "content", usize::MAX).map(|_| ())),
        Some("markdown") => only(&body, &["msgtype", "markdown", "at"])
            .and_then(|()| text(&body["markdown"], "title", usize::MAX))
            .and_then(|_| text(&body["markdown"], "text", usize::MAX))
            .and_then(|text| demand(!text.contains('@'), "a value mentions users")),
        _ => return Err(answer(400_105, "unsupported message type")),
    }
    .map_err(missing)?;
    Ok(answer(0, "ok"))
}

/// The text is the time in milliseconds and the secret, which is the key too.
fn dingtalk_is_signed(posted: &Posted) -> bool {
    let (time, sign) = (posted.query.get("timestamp"), posted.query.get("sign"));
    let (Some(time), Some(sign)) = (time, sign) else {
        return false;
    };
    let milliseconds = time.parse().unwrap_or_default();
    let signed = format!("{time}\n{SIGNING}");
    is_current(milliseconds, 3600) && is_signed(sign, SIGNING.as_bytes(), signed.as_bytes())
}

pub(super) fn wecom(posted: &Posted) -> Checked {
    if posted.path != "/cgi-bin/webhook/send" || has_no(posted, "key") {
        return Err(answer(93_000, "invalid webhook url"));
    }
    let invalid = |why: String| answer(40_058, &format!("invalid Request Parameter: {why}"));
    let body = posted.json("application/json").map_err(invalid)?;
    let (kind, longest) = match body["msgtype"].as_str() {
        Some("text") => ("text", 2048),
        Some("markdown") => ("markdown", 4096),
        _ => return Err(answer(40_008, "invalid message type")),
    };
    only(&body, &["msgtype", kind]).map_err(invalid)?;
    let content = body[kind]["content"].as_str().unwrap_or_default();
    if content.is_empty() {
        return Err(answer(44_004, "empty content"));
    }
    let length = format!("{kind}.content exceed max length {longest}");
    demand(content.len() <= longest, length).map_err(invalid)?;
    demand(!mentions(&body[kind]), "a value mentions users").map_err(invalid)?;
    Ok(answer(0, "ok"))
}

/// WeCom reads `<@user>` as a mention.
fn mentions(message: &Value) -> bool {
    let known = ["content", "mentioned_list", "mentioned_mobile_list"];
    message.to_string().contains("<@") || only(message, &known).is_err()
}

fn has_no(posted: &Posted, name: &str) -> bool {
    posted.query.get(name).is_none_or(String::is_empty)
}
