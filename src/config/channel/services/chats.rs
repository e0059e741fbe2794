//! Lark: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot. Slack:
//! https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and its reference of blocks. Teams: the trigger
//! "When a Teams webhook request is received", and the schema of Adaptive Cards.

use http::StatusCode;
use serde_json::{Value, json};

use super::SIGNING;
use super::server::{
    Checked, Posted, Reply, demand, is_current, is_signed, list, one_of, only, text,
};

const JSON: &str = "application/json";
const COLORS: [&str; 13] = [
    "blue",
    "wathet",
    "turquoise",
    "green",
    "yellow",
    "orange",
    "red",
    "carmine",
    "violet",
    "purple",
    "indigo",
    "grey",
    "default",
];

// --- Lark

/// Lark answers 200 with a code.
pub(super) fn lark(posted: &Posted) -> Checked {
    let answer = |code: i64, message: &str| {
        let answer = json!({"code": code, "msg": message, "data": {}});
        Reply::json(StatusCode::OK, &answer)
    };
    if !posted.path.starts_with("/open-apis/bot/v2/hook/") {
        let why = "param invalid: incoming webhook access token invalid";
        return Err(answer(19001, why));
    }
    let bad = |why: String| answer(9499, &format!("Bad Request: {why}"));
    demand(posted.body.len() <= 20 * 1024, "the body is too large").map_err(bad)?;
    let body = posted.json(JSON).map_err(bad)?;
    if !lark_is_signed(&body) {
        let why = "sign match fail or timestamp is not within one hour from current time";
        return Err(answer(19021, why));
    }
    lark_message(&body).map_err(bad)?;
    Ok(answer(0, "success"))
}

/// The key is the time in seconds and the secret; the text is empty.
fn lark_is_signed(body: &Value) -> bool {
    let (time, sign) = (body["timestamp"].as_str(), body["sign"].as_str());
    let (Some(time), Some(sign)) = (time, sign) else {
        return false;
    };
    let seconds: i64 = time.parse().unwrap_or_default();
    is_current(seconds.saturating_mul(1000), 3600)
        && is_signed(sign, format!("{time}\n{SIGNING}").as_bytes(), b"")
}

fn lark_message(body: &Value) -> Result<(), String> {
    if body["msg_type"] == "text" {
        only(body, &["timestamp", "sign", "msg_type", "content"])?;
        let content = text(&body["content"], "text", usize::MAX)?;
        return demand(!content.contains("<at"), "a value mentions users");
    }
    demand(body["msg_type"] == "interactive", "msg_type")?;
    only(body, &["timestamp", "sign", "msg_type", "card"])?;
    let card = &body["card"];
    only(card, &["schema", "config", "header", "body", "card_link"])?;
    demand(card["schema"] == "2.0", "schema")?;
    only(&card["config"], &["update_multi"])?;
    demand(
        card["config"]["update_multi"] == true,
        "cards of 2.0 are shared",
    )?;
    let header = &card["header"];
    only(header, &["title", "subtitle", "template"])?;
    one_of(text(header, "template", 20)?, &COLORS)?;
    for title in [header.get("title"), header.get("subtitle")]
        .into_iter()
        .flatten()
    {
        only(title, &["tag", "content"])?;
        one_of(text(title, "tag", 20)?, &["plain_text", "lark_md"])?;
        text(title, "content", usize::MAX)?;
    }
    demand(header.get("title").is_some(), "a title is missing")?;
    for element in list(&card["body"], "elements", 200)? {
        only(element, &["tag", "content"])?;
        demand(element["tag"] == "markdown", "the tag of an element")?;
        let content = text(element, "content", usize::MAX)?;
        demand(!content.contains("<at"), "a value mentions users")?;
    }
    Ok(())
}

// --- Slack

/// Slack answers by a status and a word.
pub(super) fn slack(posted: &Posted) -> Checked {
    let refuse = |status: StatusCode, word: &str| Reply::text(status, word);
    let parts: Vec<&str> = posted.path.split('/').collect();
    if parts.len() != 5 || parts[1] != "services" {
        return Err(refuse(StatusCode::NOT_FOUND, "no_service"));
    }
    let invalid = |why: String| refuse(StatusCode::BAD_REQUEST, &format!("invalid_payload {why}"));
    let body = posted.json(JSON).map_err(invalid)?;
    let (words, blocks) = (body.get("text"), body.get("blocks"));
    if words.is_none() && blocks.is_none() {
        return Err(refuse(StatusCode::BAD_REQUEST, "no_text"));
    }
    only(&body, &["text", "blocks"]).map_err(invalid)?;
    if words.is_some() {
        text(&body, "text", 40_000).map_err(invalid)?;
    }
    let hostile = body.to_string();
    demand(
        !hostile.contains("<!") && !hostile.contains("<http"),
        "a value mentions or links",
    )
    .map_err(invalid)?;
    if blocks.is_some() {
        let blocks = list(&body, "blocks", 50);
        let checked = blocks.and_then(|blocks| blocks.iter().try_for_each(slack_block));
        checked.map_err(|why| refuse(StatusCode::BAD_REQUEST, &format!("invalid_blocks {why}")))?;
    }
    Ok(Reply::text(StatusCode::OK, "ok"))
}

fn slack_block(block: &Value) -> Result<(), String> {
    match text(block, "type", 20)? {
        "header" => {
            only(block, &["type", "text", "block_id"])?;
            demand(block["text"]["type"] == "plain_text", "a header is plain")?;
            slack_text(&block["text"], 150)
        }
        "section" => {
            only(
                block,
                &["type", "text", "fields", "block_id", "accessory", "expand"],
            )?;
            demand(
                block.get("text").or(block.get("fields")).is_some(),
                "an empty section",
            )?;
            if let Some(text) = block.get("text") {
                slack_text(text, 3000)?;
            }
            if block.get("fields").is_some() {
                let fields = list(block, "fields", 10)?;
                fields
                    .iter()
                    .try_for_each(|field| slack_text(field, 2000))?;
            }
            Ok(())
        }
        "context" => {
            only(block, &["type", "elements", "block_id"])?;
            let elements = list(block, "elements", 10)?;
            elements.iter().try_for_each(|text| slack_text(text, 2000))
        }
        "divider" => only(block, &["type", "block_id"]),
        other => Err(format!("{other} is no block")),
    }
}

/// `emoji` is for plain texts, and `verbatim` for the others.
fn slack_text(object: &Value, longest: usize) -> Result<(), String> {
    let option = match text(object, "type", 20)? {
        "plain_text" => "emoji",
        "mrkdwn" => "verbatim",
        other => return Err(format!("{other} is no text")),
    };
    only(object, &["type", "text", option])?;
    demand(object.get(option).is_none_or(Value::is_boolean), option)?;
    text(object, "text", longest).map(|_| ())
}

// --- Teams

/// A flow answers 202 at once; a body outside of its schema gets 400.
pub(super) fn teams(posted: &Posted) -> Checked {
    let refuse = |status: StatusCode, code: &str, why: &str| {
        Reply::json(status, &json!({"error": {"code": code, "message": why}}))
    };
    if posted.query.get("sig").is_none_or(String::is_empty) {
        let code = "DirectApiAuthorizationRequired";
        return Err(refuse(
            StatusCode::UNAUTHORIZED,
            code,
            "the request has no signature",
        ));
    }
    if posted.body.len() > 28 * 1024 {
        let (status, code) = (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge");
        return Err(refuse(status, code, "a message has at most 28 KB"));
    }
    let checked = posted.json(JSON).and_then(|body| teams_message(&body));
    checked.map_err(|why| refuse(StatusCode::BAD_REQUEST, "TriggerInputSchemaMismatch", &why))?;
    Ok(Reply::text(StatusCode::ACCEPTED, ""))
}

fn teams_message(body: &Value) -> Result<(), String> {
    only(body, &["type", "attachments"])?;
    demand(body["type"] == "message", "type")?;
    for attachment in list(body, "attachments", 1)? {
        only(attachment, &["contentType", "contentUrl", "content"])?;
        let card = "application/vnd.microsoft.card.adaptive";
        demand(attachment["contentType"] == card, "contentType")?;
        demand(attachment["contentUrl"].is_null(), "contentUrl")?;
        let card = &attachment["content"];
        only(card, &["type", "$schema", "version", "body", "msteams"])?;
        demand(card["type"] == "AdaptiveCard", "the type of the card")?;
        one_of(
            text(card, "version", 3)?,
            &["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"],
        )?;
        list(card, "body", 100)?
            .iter()
            .try_for_each(teams_element)?;
    }
    Ok(())
}

fn teams_element(element: &Value) -> Result<(), String> {
    if element["type"] == "RichTextBlock" {
        only(element, &["type", "inlines", "horizontalAlignment"])?;
        let runs = list(element, "inlines", 100)?;
        return runs.iter().try_for_each(|run| teams_text(run, "TextRun"));
    }
    teams_text(element, "TextBlock")
}

fn teams_text(object: &Value, kind: &str) -> Result<(), String> {
    only(
        object,
        &[
            "type", "text", "size", "weight", "wrap", "isSubtle", "color",
        ],
    )?;
    demand(object["type"] == kind, format!("{kind} is expected"))?;
    // The text of a run may be empty.
    demand(object["text"].is_string(), "text")?;
    for (key, known) in [
        (
            "size",
            &["Default", "Small", "Medium", "Large", "ExtraLarge"][..],
        ),
        ("weight", &["Default", "Lighter", "Bolder"]),
    ] {
        if object.get(key).is_some() {
            one_of(text(object, key, 20)?, known)?;
        }
    }
    for key in ["wrap", "isSubtle"] {
        demand(object.get(key).is_none_or(Value::is_boolean), key)?;
    }
    Ok(())
}
