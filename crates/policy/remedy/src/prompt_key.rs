//! The beginning of a prompt, as far as all calls of one conversation with a language model share it. A
//! provider that has read it before may have it in a cache, which belongs to one account.

use serde_json::Value;

/// Members by which a client names its conversation, or what a provider keeps for it. The first one counts.
const NAMES: [&str; 3] = ["/prompt_cache_key", "/cachedContent", "/metadata/user_id"];

/// Members that a provider reads before the conversation.
const BEFORE: [&str; 6] =
    ["tools", "toolConfig", "system", "systemInstruction", "system_instruction", "instructions"];

/// Members that have the conversation.
const CONVERSATIONS: [&str; 3] = ["messages", "contents", "input"];

/// Roles of messages that come before the first one of the user.
const ROLES_BEFORE: [&str; 2] = ["system", "developer"];

/// Returns bytes that are equal for calls whose prompts begin alike: the name that the JSON body has for the
/// conversation, else the tools, the instructions and the first message. `None` if it has none of these.
pub(crate) fn prompt_key(body: &[u8]) -> Option<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let mut names = NAMES.iter().filter_map(|pointer| body.pointer(pointer)?.as_str());
    if let Some(name) = names.find(|name| !name.is_empty()) {
        return Some(name.as_bytes().to_vec());
    }
    unmark(&mut body);
    let conversation = CONVERSATIONS.iter().find_map(|name| body.get(name));
    let parts: Vec<&Value> = BEFORE
        .iter()
        .filter_map(|name| body.get(name))
        .chain(conversation.into_iter().flat_map(first))
        .collect();
    if parts.is_empty() { None } else { serde_json::to_vec(&parts).ok() }
}

/// Removes the marks of what is to be cached, which move on with the conversation.
fn unmark(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| name != "cache_control");
            members.values_mut().for_each(unmark);
        }
        Value::Array(items) => items.iter_mut().for_each(unmark),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a conversation up to the first message of the user.
fn first(conversation: &Value) -> &[Value] {
    let Value::Array(messages) = conversation else { return std::slice::from_ref(conversation) };
    let is_before = |message: &Value| {
        message.get("role").and_then(Value::as_str).is_some_and(|role| ROLES_BEFORE.contains(&role))
    };
    let end = messages.iter().position(|message| !is_before(message)).map_or(messages.len(), |at| at + 1);
    &messages[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(body: &str) -> Option<String> {
        prompt_key(body.as_bytes()).map(|key| String::from_utf8(key).unwrap())
    }

    #[test]
    fn a_name_that_the_client_gives_is_the_key() {
        for (body, expected) in [
            (r#"{"prompt_cache_key":"k","metadata":{"user_id":"u"},"messages":[1]}"#, "k"),
            (r#"{"prompt_cache_key":"","metadata":{"user_id":"u"},"messages":[1]}"#, "u"),
            (
                r#"{"prompt_cache_key":7,"cachedContent":"cachedContents/c","contents":[]}"#,
                "cachedContents/c",
            ),
        ] {
            assert_eq!(key(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn calls_of_a_conversation_have_one_key() {
        for (begun, grown, other) in [
            (
                r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}"#,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"stream":true}"#,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"d"}]}"#,
            ),
            (
                r#"{"system":"s","tools":[1],"messages":[{"role":"user","content":"a"}]}"#,
                r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant"}],"tools":[1],"system":"s"}"#,
                r#"{"system":"s","tools":[2],"messages":[{"role":"user","content":"a"}]}"#,
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}]}"#,
            ),
            (
                r#"{"instructions":"s","input":"a"}"#,
                r#"{"instructions":"s","input":"a","max_output_tokens":5}"#,
                r#"{"instructions":"s","input":"b"}"#,
            ),
            (
                r#"{"contents":[{"parts":[{"text":"a"}]}],"systemInstruction":{}}"#,
                r#"{"contents":[{"parts":[{"text":"a"}]},{"parts":[]}],"systemInstruction":{}}"#,
                r#"{"contents":[{"parts":[{"text":"b"}]}],"systemInstruction":{}}"#,
            ),
        ] {
            assert!(key(begun).is_some() && key(begun) == key(grown), "{begun}");
            assert_ne!(key(begun), key(other), "{begun}");
        }
    }

    #[test]
    fn a_body_without_a_prompt_has_no_key() {
        for body in ["", "[]", "7", "{}", r#"{"messages":[]}"#, r#"{"model":"m","metadata":{}}"#] {
            assert_eq!(key(body), None, "{body}");
        }
    }
}
